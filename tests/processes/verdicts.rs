//! The checker finds what it must find: each history here has one violation.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{checker::check, history::Entry, source::Puts};

const SHARD: &str = "shard";

/// Expands a short script: action, worker, epoch, and which of two records. Each write increments the counter.
fn history(script: &str) -> Vec<Entry> {
    let at = Instant::now();
    let (mut checkpoint, mut owner, mut newest) = ("TRIM_HORIZON".to_owned(), String::new(), 0);
    let mut entry = |(n, words): (usize, &str)| {
        let words: Vec<&str> = words.split_whitespace().collect();
        let [what, worker, epoch, rest @ ..] = words.as_slice() else { panic!("{words:?}") };
        let (epoch, record): (u64, usize) = (epoch.parse().unwrap(), rest.first().map_or(0, |n| n.parse().unwrap()));
        let number = format!("1{record}");
        match *what {
            "takes" => (owner, newest) = ((*worker).to_owned(), epoch),
            "saves" => checkpoint.clone_from(&number),
            _ => {}
        }
        let row = json!({
            "leaseOwner": { "S": owner }, "epoch": { "N": newest.to_string() }, "leaseCounter": { "N": (n + 1).to_string() },
            "checkpoint": { "S": checkpoint },
        });
        let mut line: Value = match *what {
            "takes" => json!({ "event": "wrote", "row": row, "saves": false, "if_epoch": epoch - 1 }),
            "saves" => json!({ "event": "wrote", "row": row, "saves": true, "if_epoch": epoch }),
            "stores" => json!({ "event": "settled", "commit": "stored" }),
            event => json!({ "event": event }),
        };
        (line["owner"], line["shard"], line["epoch"]) = ((*worker).into(), SHARD.into(), epoch.into());
        (line["number"], line["payload"]) = (number.into(), format!("key {record}").into());
        Entry { at, line }
    };
    script.split(", ").enumerate().map(&mut entry).collect()
}

/// The first violation in a history, if the stream holds two records at the end.
fn fault(script: &str) -> String {
    let mut puts = Puts::default();
    puts.keys.insert("key".to_owned(), 2);
    puts.shards.insert(SHARD.to_owned(), vec!["10".to_owned(), "11".to_owned()]);
    check(&history(script), &puts).violations.into_iter().next().unwrap_or_default()
}

const FIRST: &str = "takes a 1, begun a 1 0, done a 1 0, saves a 1 0, stores a 1 0";

#[test]
fn a_correct_history_has_no_violation() {
    assert_eq!(fault(&format!("{FIRST}, begun a 1 1, done a 1 1, saves a 1 1, stores a 1 1")), "");
    assert_eq!(
        fault(&format!("{FIRST}, begun a 1 1, takes b 2, begun b 2 1, done b 2 1, saves b 2 1, done a 1 1")),
        ""
    );
}

#[test]
fn the_checker_names_the_violation_in_a_faulty_history() {
    let table = [
        ("takes b 2, begun b 2 1, done b 2 1, saves a 1 1", "a write of an older epoch is accepted"),
        ("takes b 2, takes a 1", "epoch 2 and counter"),
        ("takes b 3", "epoch 1 and counter"),
        ("begun a 1 1, saves a 1 1", "the checkpoint passes record 1"),
        ("begun a 1 1, done a 1 1, saves a 1 1, saves a 1 0", "the checkpoint moves back from 2 to 1"),
        ("begun a 1 1, done a 1 1, stores a 1 1", "it is said to be stored, and the table covers 1"),
        ("takes b 2, stores b 2 0", "it was stored under epoch 1, too"),
        ("takes b 2, begun b 2 0", "the lease is"),
        ("takes b 2, begun a 2 1", "the lease is"),
        ("begun a 1 0", "it was delivered twice under one lease"),
        ("begun a 1 2", "nobody put it"),
        ("begun a 1 1", "of 2 records 1 were done, 1 stored"),
    ];
    for (script, expected) in table {
        let fault = fault(&format!("{FIRST}, {script}"));
        assert!(fault.contains(expected), "{script}: {fault}");
    }
    assert!(fault("takes a 1, begun a 1 1").contains("key 0 should be next"));
}
