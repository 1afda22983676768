//! Where the daemon's folders are, as its start looks at them: [`notes`] without a daemon, and without a change.

use super::{ServeError, listen::above};
use crate::config::Config;
use crate::os::folder;
use crate::store::directory;
use std::path::Path;

/// Refuses a `directory` that the folder of a socket lies in by any name, as by a link: the daemon closes the one to all
/// others, and clients pass the other.
///
/// # Errors
/// That it does. What else is wrong with them the start says when it takes them.
pub(super) fn apart(config: &Config, socket: &Path) -> Result<(), ServeError> {
    let open = |path: &Path| folder::look_at(path).ok().flatten();
    let own = config.directory.as_ref();
    // Of a folder that is made yet, the one that it is made in.
    if let (Some(directory), Some(above)) = (open(own), above(socket).ancestors().find_map(open))
        && folder::lies_in(above, directory).unwrap_or(false)
    {
        let text = "the folder of the socket, which clients pass, is `directory` or lies in it: the daemon closes that to all others, set another";
        return Err(ServeError::Config(config.wrong(&config.directory, text)));
    }
    Ok(())
}

/// What a start by this user would say of them.
pub(super) fn notes(config: &Config) -> Vec<String> {
    let (own, socket) = (config.directory.as_ref(), config.socket.as_ref());
    let refused = |place: &Path, error: &dyn std::fmt::Display| {
        format!(
            "a daemon of this user's does not start: {}: {error}",
            place.display()
        )
    };
    let mut notes = Vec::new();
    if let Err(error) = apart(config, socket) {
        notes.push(refused(own, &error));
    }
    match directory::look(own) {
        Ok(note) => notes.extend(note),
        Err(error) => notes.push(refused(own, &error)),
    }
    if let Err(error) = folder::look_at_passable(above(socket)) {
        notes.push(refused(socket, &error));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    fn config(socket: &Path, directory: &Path) -> Config {
        let text = format!("socket = {socket:?}\ndirectory = {directory:?}\n");
        Config::parse(Path::new("pool.toml"), &text).unwrap()
    }

    fn folder(above: &Path, name: &str, mode: u32) -> PathBuf {
        let path = above.join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_a_start_refuses_is_noted_and_nothing_changes() {
        let top = tempfile::tempdir().unwrap();
        let [open, other, own] = [("open", 0o777), ("other", 0o755), ("own", 0o755)]
            .map(|(name, mode)| folder(top.path(), name, mode));
        fs::write(other.join("status"), "").unwrap();
        let socket = top.path().join("run/pool.sock");
        let all = |socket: &Path, directory: &Path| notes(&config(socket, directory));
        for (socket, directory, text) in [
            (
                open.join("pool.sock"),
                own.join("own"),
                "others may write to",
            ),
            (
                open.join("a/b/pool.sock"),
                own.join("own"),
                "others may write to",
            ),
            (socket.clone(), open.join("own"), "others may write to"),
            (socket.clone(), other.clone(), "`status` is in it"),
            (socket.clone(), own.clone(), "gives it 700"),
        ] {
            let notes = all(&socket, &directory);
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(notes[0].contains(text), "{notes:?}");
        }
        for directory in [own.join("own"), top.path().join("a/b")] {
            assert!(all(&socket, &directory).is_empty());
        }
        let modes = [&open, &other, &own].map(|path| mode(path));
        assert_eq!(modes, [0o777, 0o755, 0o755]);
        assert!(!socket.parent().unwrap().exists());
    }

    #[test]
    fn the_folder_of_the_socket_does_not_lie_in_the_daemons_by_a_link_either() {
        let top = tempfile::tempdir().unwrap();
        let above = folder(top.path(), "above", 0o711);
        folder(&above, "run", 0o711);
        let link = top.path().join("link");
        symlink(&above, &link).unwrap();
        for socket in [
            "above/pool.sock",
            "above/run/pool.sock",
            "above/none/pool.sock",
        ] {
            let socket = top.path().join(socket);
            let config = config(&socket, &link);
            let error = apart(&config, &socket).unwrap_err().to_string();
            assert!(error.contains("set another"), "{error}");
            assert!(
                notes(&config)
                    .iter()
                    .any(|note| note.contains("set another"))
            );
        }
        let socket = link.join("pool.sock");
        for directory in ["run", "none"] {
            apart(&config(&socket, &above.join(directory)), &socket).unwrap();
        }
        // One that the service manager opened elsewhere.
        let elsewhere = top.path().join("run/pool.sock");
        apart(&config(&elsewhere, &link), &elsewhere).unwrap();
        apart(&config(&elsewhere, &link), &socket).unwrap_err();
    }
}
