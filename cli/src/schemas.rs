//! `schemas/` is what the types of the documents give, and `docs/schemas.md` lists all of it:
//! `UPDATE=1 cargo test -p firstlight-cli --bin firstlight schemas` writes the files.

use firstlight_bench::{alloc, zero};
use firstlight_lab as lab;
use firstlight_pool_cli::schemas::{all, form};
use firstlight_wire::Event;
use schemars::Schema;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every document that a program prints or leaves in a folder.
fn documents() -> BTreeMap<&'static str, Schema> {
    let mut documents = all();
    documents.extend([
        ("bench-alloc/1", form::<alloc::Record>()),
        ("bench-zero/1", form::<zero::Record>()),
        ("bisect/1", form::<lab::bisect::Answer>()),
        ("blocks/1", form::<crate::blocks::Document>()),
        ("compare/1", form::<lab::compare::Comparison>()),
        ("demo/1", form::<crate::demo::Record>()),
        ("doctor/1", form::<lab::doctor::Report>()),
        ("events/1", form::<Event<String, Vec<u8>>>()),
        ("failed/1", form::<lab::matrix::Failed>()),
        ("gate/1", form::<lab::gate::Verdict>()),
        ("history/1", form::<lab::history::History>()),
        ("layout/1", form::<lab::linux::LayoutAnswer>()),
        ("matrix/1", form::<crate::matrix::Document>()),
        ("predict/1", form::<lab::predict::Prediction>()),
        ("published/1", form::<crate::published::Document>()),
        ("report/1", form::<lab::report::Report>()),
        ("run/1", form::<lab::record::Record>()),
        ("stick/1", form::<crate::stick::Written<'_>>()),
        ("sweep/1", form::<lab::sweep::Record>()),
        ("watch/1", form::<lab::console::Watched>()),
    ]);
    documents.into_iter().collect()
}

/// What the page says of each: the last column of its table.
fn described() -> BTreeMap<String, String> {
    let page = fs::read_to_string(root().join("docs/schemas.md")).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| [`firstlight.")?.split('|');
        let (name, link) = cells.next()?.trim().split_once("`](../schemas/")?;
        assert_eq!(link, format!("{}.json)", name.replace('/', "-")));
        Some((name.to_owned(), cells.nth(1)?.trim().to_owned()))
    };
    page.lines().filter_map(row).collect()
}

/// Links of documentation comments are names there.
fn plain(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(text)) = object.get_mut("description") {
                while let Some(at) = text.find("`](") {
                    let end = text[at..].find(')').unwrap_or_default();
                    text.replace_range(at + 1..=at + end, "");
                }
                *text = text.replace("[`", "`").replace("`]", "`");
            }
            object.values_mut().for_each(plain);
        }
        Value::Array(list) => list.iter_mut().for_each(plain),
        _ => {}
    }
}

/// The file of a document.
fn file(name: &str, schema: Schema, what: &str) -> String {
    let mut value = schema.to_value();
    plain(&mut value);
    let name = format!("firstlight.{name}");
    let object = value.as_object_mut().unwrap();
    object.insert("title".into(), json!(name));
    object.insert("description".into(), json!(what));
    if let Some(Value::Object(fields)) = object.get_mut("properties") {
        fields.insert("schema".into(), json!({"const": name}));
    }
    // These come first.
    let mut text = String::from("{\n");
    let first = ["$schema", "title", "description"];
    let mut rest: Map<String, Value> = std::mem::take(object);
    for key in first {
        let value = rest.remove(key).unwrap();
        text.push_str(&format!("  {}: {value},\n", json!(key)));
    }
    let rest = serde_json::to_string_pretty(&rest).unwrap();
    text.push_str(rest.strip_prefix("{\n").unwrap());
    text.push('\n');
    text
}

#[test]
fn the_files_are_what_the_types_give_and_the_page_lists_them() {
    let folder = root().join("schemas");
    let described = described();
    let mut files = BTreeSet::new();
    for (name, schema) in documents() {
        let what = described.get(name);
        let what = what.unwrap_or_else(|| panic!("docs/schemas.md does not list {name}"));
        let text = file(name, schema, what);
        let path = folder.join(format!("{}.json", name.replace('/', "-")));
        if env::var_os("UPDATE").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&path, &text).unwrap();
        }
        assert!(
            fs::read_to_string(&path).is_ok_and(|written| written == text),
            "{} is not what the types give: \
             UPDATE=1 cargo test -p firstlight-cli --bin firstlight schemas",
            path.display()
        );
        files.insert(path);
    }
    assert_eq!(files.len(), described.len(), "{described:?}");
    let found = fs::read_dir(folder).unwrap();
    let found: BTreeSet<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found, files);
}
