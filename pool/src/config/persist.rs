//! A configuration with another number of slabs: the operator's words and comments stay.

use super::{Config, ConfigError, Size};
use crate::machine::Spec;
use crate::store::Key;
use std::path::Path;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

impl Config {
    /// The text of a configuration in which the class `key` keeps `slabs`: the class's
    /// `slabs` is changed, or a class is added at the end. `path` is only for messages.
    ///
    /// ```
    /// use firstlight_pool::config::Config;
    /// use firstlight_pool::{protocol::PageSize, store::Key};
    /// use std::path::Path;
    /// let text = "[[class]]\nsize = \"8G\" # ours\nslabs = 2\n";
    /// let key = Key { page: PageSize::Huge, node: None, bytes: 8 << 30 };
    /// let text = Config::with_slabs(Path::new("pool.toml"), text, &key, 4)?;
    /// assert_eq!(text, "[[class]]\nsize = \"8G\" # ours\nslabs = 4\n");
    /// # Ok::<(), firstlight_pool::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// A text that is no valid configuration, before or after.
    pub fn with_slabs(
        path: &Path,
        text: &str,
        key: &Key,
        slabs: u32,
    ) -> Result<String, ConfigError> {
        let config = Self::parse(path, text)?;
        let wrong = |error: toml_edit::TomlError| {
            ConfigError::at(path, text, error.span(), error.message())
        };
        let mut document: DocumentMut = text.parse().map_err(wrong)?;
        let mut classes = config.class.iter();
        let at = classes.position(|class| Spec::from(class).key == *key);
        let wanted = value(i64::from(slabs));
        match (at, document.get_mut("class")) {
            // The number alone, so that what stands beside it stays.
            (Some(at), Some(Item::ArrayOfTables(classes))) => {
                if let Some(kept) = classes.get_mut(at).and_then(|class| class.get_mut("slabs")) {
                    replace(kept, slabs);
                }
            }
            (Some(at), Some(Item::Value(classes))) => {
                let class = classes.as_array_mut().and_then(|all| all.get_mut(at));
                let class = class.and_then(toml_edit::Value::as_inline_table_mut);
                if let (Some(class), Item::Value(wanted)) = (class, wanted) {
                    class.insert("slabs", wanted);
                }
            }
            (_, classes) => {
                let mut class = Table::new();
                class["page"] = value(key.page.word());
                class["size"] = value(Size::new(key.bytes).to_string());
                class["slabs"] = wanted;
                if let Some(node) = key.node {
                    class["node"] = value(i64::from(node));
                }
                match classes {
                    Some(Item::ArrayOfTables(classes)) => classes.push(class),
                    Some(Item::Value(classes)) => {
                        if let Some(all) = classes.as_array_mut() {
                            all.push(class.into_inline_table());
                        }
                    }
                    _ => {
                        let mut classes = ArrayOfTables::new();
                        classes.push(class);
                        document["class"] = Item::ArrayOfTables(classes);
                    }
                }
            }
        }
        let text = document.to_string();
        Self::parse(path, &text)?;
        Ok(text)
    }
}

fn replace(kept: &mut Item, slabs: u32) {
    if let Item::Value(old) = kept {
        let decor = old.decor().clone();
        *old = i64::from(slabs).into();
        *old.decor_mut() = decor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PageSize;

    const TEXT: &str = "# ours\n[fill]\nrate = \"1G\" # slow\n\n[[class]]\nsize = \"8G\"\nslabs = 2 # two\n\n\
                        [[class]]\nsize = \"8GiB\"\nnode = 1\nslabs = 1\n";

    fn changed(text: &str, key: &Key, slabs: u32) -> String {
        Config::with_slabs(Path::new("test"), text, key, slabs).unwrap()
    }

    #[test]
    fn one_number_changes_and_nothing_else() {
        let key = |node| Key {
            page: PageSize::Huge,
            node,
            bytes: 8 << 30,
        };
        let expected = TEXT.replace("slabs = 2 # two", "slabs = 5 # two");
        assert_eq!(changed(TEXT, &key(None), 5), expected);
        let expected = TEXT.replace("slabs = 1", "slabs = 0");
        assert_eq!(changed(TEXT, &key(Some(1)), 0), expected);
        let inline = "class = [{ size = \"8G\", slabs = 2 }]\n";
        assert_eq!(
            changed(inline, &key(None), 3),
            "class = [{ size = \"8G\", slabs = 3 }]\n"
        );
    }

    #[test]
    fn a_class_that_is_not_there_is_added() {
        let key = Key {
            page: PageSize::Giant,
            node: Some(0),
            bytes: 32 << 30,
        };
        for text in [TEXT, "", "class = [{ size = \"8G\", slabs = 2 }]\n"] {
            let after = Config::parse(Path::new("test"), &changed(text, &key, 7)).unwrap();
            let before = Config::parse(Path::new("test"), text).unwrap();
            assert_eq!(after.class.len(), before.class.len() + 1);
            let added = after.class.last().unwrap();
            let key = Spec::from(added).key;
            assert_eq!((key.page, key.node), (PageSize::Giant, Some(0)));
            assert_eq!((added.size.as_ref().bytes(), added.slabs), (32 << 30, 7));
        }
        assert!(changed(TEXT, &key, 7).starts_with(TEXT));
    }

    #[test]
    fn what_is_no_configuration_is_left_alone() {
        let key = Key {
            page: PageSize::Huge,
            node: None,
            bytes: 3,
        };
        Config::with_slabs(Path::new("test"), "sockt = 1", &key, 1).unwrap_err();
        Config::with_slabs(Path::new("test"), "", &key, 1).unwrap_err();
    }
}
