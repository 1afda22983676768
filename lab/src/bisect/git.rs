//! The commits of a tree, driven by `git bisect`: [`Git`]. The tree is left as it was found,
//! also where the search ends early.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Candidates, Mark, Next};

/// A tree between two commits.
#[derive(Debug)]
pub struct Git {
    tree: PathBuf,
    good: String,
    bad: String,
    build: Vec<String>,
    /// Where HEAD was: a branch, or a commit.
    home: String,
    started: bool,
}

impl Git {
    /// The commits of `tree` from `good` to `bad`; `build` makes what is booted of each.
    ///
    /// # Errors
    /// Why there is no such tree: what git says, or changes that would be lost.
    pub fn new(tree: &Path, good: &str, bad: &str, build: Vec<String>) -> Result<Self, String> {
        let mut git = Self {
            tree: tree.to_owned(),
            good: String::new(),
            bad: String::new(),
            build,
            home: String::new(),
            started: false,
        };
        let changed = git.git(&["status", "--porcelain", "--untracked-files=no"])?;
        if !changed.is_empty() {
            return Err(format!(
                "{} has changes that are not committed; expected none, commits are checked out there",
                tree.display()
            ));
        }
        if git
            .git(&["rev-parse", "--git-path", "BISECT_START"])
            .is_ok_and(|path| tree.join(path).is_file())
        {
            return Err(format!(
                "{} is being bisected already; `git bisect reset` ends that",
                tree.display()
            ));
        }
        let commit = |name: &str| format!("{name}^{{commit}}");
        git.good = git.git(&["rev-parse", "--verify", &commit(good)])?;
        git.bad = git.git(&["rev-parse", "--verify", &commit(bad)])?;
        let ancestor = ["merge-base", "--is-ancestor", &git.good, &git.bad];
        if git.git(&ancestor).is_err() {
            return Err(format!(
                "{good} is no ancestor of {bad}; expected the good commit to come first"
            ));
        }
        let head = git.git(&["rev-parse", "HEAD"])?;
        git.home = git
            .git(&["symbolic-ref", "--short", "-q", "HEAD"])
            .unwrap_or(head);
        Ok(git)
    }

    /// Both ends, as commits.
    #[must_use]
    pub fn ends(&self) -> (String, String) {
        (self.good.clone(), self.bad.clone())
    }

    /// What git prints.
    fn git(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new("git");
        command
            .arg("-C")
            .arg(&self.tree)
            .args(arguments)
            .stdin(Stdio::null());
        let output = command.output().map_err(|error| {
            format!("cannot run git: {error}; expected git on PATH, or kernels by --images")
        })?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if output.status.success() {
            Ok(text)
        } else {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(format!("git {}: {words} {text}", arguments.join(" ")))
        }
    }

    /// What to do after git has said `text`.
    fn after(&self, text: &str) -> Result<Next, String> {
        if let Some(line) = text
            .lines()
            .find(|line| line.ends_with(" is the first bad commit"))
        {
            let commit = line.split(' ').next().unwrap_or_default();
            return Ok(Next::Found(commit.to_owned()));
        }
        Ok(Next::Try(
            self.git(&["rev-parse", "BISECT_HEAD"])
                .or_else(|_| self.git(&["rev-parse", "HEAD"]))?,
        ))
    }

    /// Commits that may be the first bad one, where all of them were passed over.
    fn left(&self) -> Result<Next, String> {
        let good = self.git(&[
            "for-each-ref",
            "--format=^%(objectname)",
            "refs/bisect/good-*",
        ])?;
        let mut arguments = vec!["rev-list", "--reverse", "refs/bisect/bad"];
        arguments.extend(good.lines());
        let list = self.git(&arguments)?;
        Ok(Next::OneOf(list.lines().map(str::to_owned).collect()))
    }

    fn build(&self) -> Result<(), String> {
        let Some((program, arguments)) = self.build.split_first() else {
            return Ok(());
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.tree)
            .stdin(Stdio::null());
        let output = command
            .output()
            .map_err(|error| format!("cannot run {program}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or_default();
        Err(format!("{program}: {}: {last}", output.status))
    }
}

impl Candidates for Git {
    fn next(&mut self, mark: Option<Mark>) -> Result<Next, String> {
        let said = match mark {
            None => {
                self.git(&["checkout", "-q", "--force", &self.bad])?;
                self.started = true;
                self.git(&["bisect", "start", &self.bad, &self.good])
            }
            Some(Mark::Good) => self.git(&["bisect", "good"]),
            Some(Mark::Bad) => self.git(&["bisect", "bad"]),
            Some(Mark::Skip) => self.git(&["bisect", "skip"]),
        };
        match said {
            Ok(text) => self.after(&text),
            // Git ends with an error where only commits are left that were passed over.
            Err(text) if text.contains("'skip'ped commits left") => self.left(),
            Err(text) => Err(text),
        }
    }

    fn take(&mut self, name: &str) -> Result<String, String> {
        let about = self.git(&["show", "-s", "--format=%h %s", name])?;
        self.git(&["checkout", "-q", "--force", name])?;
        self.build()?;
        Ok(about)
    }
}

impl Drop for Git {
    fn drop(&mut self) {
        if self.started {
            // Nothing is left to say it to.
            let _ = self
                .git(&["bisect", "reset", "-q"])
                .or_else(|_| self.git(&["bisect", "reset"]));
        }
        let _ = self.git(&["checkout", "-q", "--force", &self.home]);
    }
}
