//! The layering of the crate: every module imports only from lower layers, so there are no cycles.

#![expect(clippy::unwrap_used, reason = "an unreadable file fails the test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// The folders of the crate, the lowest first, as in ARCHITECTURE.md. `simulation` holds only tests.
const ORDER: &[&str] = &[
    "util",
    "types",
    "error",
    "metering",
    "budget",
    "wire",
    "config",
    "aws",
    "kinesis",
    "lease",
    "state",
    "connection",
    "dead_letters",
    "reading",
    "delivery",
    "coordination",
    "publishing",
    "telemetry",
    "subscription",
    "broker",
    "prelude",
    "fuzzing",
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The top-level module of a file.
fn module(file: &Path, src: &Path) -> String {
    let first = file.strip_prefix(src).unwrap().components().next().unwrap();
    Path::new(&first).with_extension("").to_string_lossy().into_owned()
}

/// The top-level modules that a file imports with `use crate::`, except in tests.
fn imports(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let mut found = BTreeSet::new();
    for import in code.split("\nuse crate::").skip(1).map(|rest| rest.split(';').next().unwrap()) {
        let Some(group) = import.strip_prefix('{') else {
            found.insert(import.split("::").next().unwrap().trim().to_owned());
            continue;
        };
        let mut depth = 0;
        let mut name = String::new();
        for letter in group.chars() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    found.insert(name.split("::").next().unwrap().trim().to_owned());
                    name.clear();
                }
                _ if depth == 0 => name.push(letter),
                _ => {}
            }
        }
        found.insert(name.split("::").next().unwrap().trim().to_owned());
    }
    found.into_iter().filter(|name| ORDER.contains(&name.as_str())).collect()
}

#[test]
fn every_module_imports_only_from_lower_layers() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rank = |name: &str| ORDER.iter().position(|module| *module == name);
    let mut upwards = Vec::new();
    for file in sources(&src).into_iter().filter(|file| !file.ends_with("lib.rs")) {
        let own = module(&file, &src);
        if own == "simulation" {
            continue;
        }
        let own_rank = rank(&own).unwrap_or_else(|| panic!("{own} has no place in the order"));
        let above = imports(&fs::read_to_string(&file).unwrap());
        upwards.extend(
            above.into_iter().filter(|name| rank(name) > Some(own_rank)).map(|name| format!("{own} -> {name}")),
        );
    }
    assert_eq!(upwards, Vec::<String>::new());
}
