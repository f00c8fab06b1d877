//! The lease store in a file: its rows, who can open it, and what survives a killed process.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, future::join_all};
use kinesis_stream::{
    Checkpoint, Commit, Delivery, EmbeddedLeaseStore, Held, KinesisBroker, KinesisPosition, KinesisStream, Lease,
    LeaseKey, LeaseStore, Subscription, Take, Write,
    contract::{self, LostAnswer},
};
use kinesis_stream_support::{Emulator, unique};
use tokio::time::{Duration, sleep, timeout};

const STREAM: &str = "stream";
const SHARD: &str = "shardId-000000000000";
const PATIENCE: Duration = Duration::from_mins(1);

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique("leases"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("leases.redb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn key(shard: &str) -> LeaseKey {
    LeaseKey::new("default", STREAM, shard)
}

fn take(shard: &str) -> Take {
    let parents = vec!["shardId-p".into(), "shardId-q".into()];
    Take::new(key(shard), "a").with_parents(parents).with_stream_created(Some(1_700_000_000_123))
}

fn held(shard: &str) -> Held {
    Held::new(key(shard), "a", 1)
}

fn after(number: usize) -> Checkpoint {
    Checkpoint::After(number.to_string().into())
}

async fn rows(store: &EmbeddedLeaseStore) -> Vec<Lease> {
    store.leases("default", STREAM).await.unwrap().rows
}

fn refusal(path: impl AsRef<Path>) -> String {
    EmbeddedLeaseStore::open(path).unwrap_err().to_string()
}

/// Opens a file that subscriptions have just closed.
async fn reopened(path: &Path) -> EmbeddedLeaseStore {
    let opens = async {
        loop {
            match EmbeddedLeaseStore::open(path) {
                Ok(store) => return store,
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    };
    timeout(PATIENCE, opens).await.expect("the file is free once the subscriptions are gone")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_fulfils_the_contract() {
    let folder = Folder::new();
    contract::run(Arc::new(EmbeddedLeaseStore::open(folder.file()).unwrap())).await;
}

#[tokio::test]
async fn a_reopened_file_holds_every_row_unchanged() {
    let folder = Folder::new();
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    let shards = ["0", "1", "2", "3", "4", "5", "6"];
    for shard in shards {
        store.take(&take(shard)).await.unwrap();
    }
    let checkpoints =
        [Checkpoint::Since(0), Checkpoint::Since(-1), Checkpoint::At("1".into()), after(2), Checkpoint::ShardEnd];
    for (shard, checkpoint) in shards.iter().zip(&checkpoints) {
        store.checkpoint(&held(shard), checkpoint).await.unwrap();
    }
    store.release(&held("1")).await.unwrap();
    let row = rows(&store).await.remove(2);
    store.ask(&row.key, row.seen(), "b").await.unwrap();
    store.renew(&held("5")).await.unwrap();
    let row = rows(&store).await.remove(6);
    store.delete(&row.key, row.seen()).await.unwrap();
    let before = rows(&store).await;
    assert_eq!(before.len(), 6);
    drop(store);
    for _ in 0..2 {
        assert_eq!(rows(&EmbeddedLeaseStore::open(folder.file()).unwrap()).await, before);
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "the folder holds only the one file");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_ten_that_create_the_file_at_the_same_time_opens_it() {
    for _ in 0..10 {
        let folder = Folder::new();
        let open = |_| {
            let path = folder.file();
            tokio::task::spawn_blocking(move || EmbeddedLeaseStore::open(path))
        };
        let opened = join_all((0..10).map(open)).await;
        let (stores, errors): (Vec<_>, Vec<_>) = opened.into_iter().map(Result::unwrap).partition(Result::is_ok);
        assert_eq!(stores.len(), 1);
        assert!(errors.iter().all(|error| error.as_ref().unwrap_err().to_string().contains("open already")));
        let store = stores.into_iter().next().unwrap().unwrap();
        store.take(&take(SHARD)).await.unwrap();
        drop(store);
        assert_eq!(rows(&EmbeddedLeaseStore::open(folder.file()).unwrap()).await.len(), 1);
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "the files of the others are removed");
    }
}

#[tokio::test]
async fn a_file_cannot_be_opened_twice_in_one_process_but_clones_share_it() {
    let folder = Folder::new();
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    let error = refusal(folder.file());
    assert!(error.contains("Within one process, clone the store that has it open"), "{error}");
    store.clone().take(&take(SHARD)).await.unwrap();
    assert_eq!(rows(&store).await.len(), 1);
}

#[test]
fn an_open_error_names_the_file_and_says_what_to_do() {
    let folder = Folder::new();
    let missing = folder.0.join("missing").join("leases.redb");
    assert_eq!(
        refusal(&missing).split(" (").next().unwrap(),
        format!("the lease file {}: there is no such file or folder: make the folder first", missing.display())
    );
    assert!(refusal(&folder.0).contains("that is a folder: name a file in it"));
    let text = folder.0.join("notes.txt");
    fs::write(&text, "These are no leases.\n".repeat(1_000)).unwrap();
    assert!(refusal(&text).contains("that is not a file of leases, or it is damaged"));
    assert!(fs::read_to_string(&text).unwrap().starts_with("These are no leases."), "the file is unchanged");
}

#[test]
fn an_empty_file_is_refused_and_stays_empty() {
    let folder = Folder::new();
    fs::write(folder.file(), "").unwrap();
    assert!(refusal(folder.file()).contains("that is not a file of leases, or it is damaged"));
    assert_eq!(fs::read(folder.file()).unwrap(), b"");
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_belongs_to_its_user_alone_and_links_are_not_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let folder = Folder::new();
    drop(EmbeddedLeaseStore::open(folder.file()).unwrap());
    assert_eq!(fs::metadata(folder.file()).unwrap().permissions().mode() & 0o777, 0o600);

    let other = folder.0.join("other");
    let empty = folder.0.join("empty");
    fs::write(&empty, "").unwrap();
    let before = fs::read(folder.file()).unwrap();
    for target in [&other, &empty, &folder.file(), &folder.0] {
        let link = folder.0.join("link");
        symlink(target, &link).unwrap();
        assert!(refusal(&link).contains("that is a symbolic link, or no file: name the file itself"), "{target:?}");
        fs::remove_file(&link).unwrap();
    }
    assert!(!other.exists());
    assert_eq!(fs::read(&empty).unwrap(), b"");
    assert_eq!(fs::read(folder.file()).unwrap(), before);
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2);
}

/// A file with rows in it, as bytes.
async fn full_file(folder: &Folder) -> Vec<u8> {
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    for shard in 0..100 {
        let shard = shard.to_string();
        store.take(&take(&shard)).await.unwrap();
        store.checkpoint(&held(&shard), &after(1)).await.unwrap();
    }
    drop(store);
    fs::read(folder.file()).unwrap()
}

/// Opens a file with these bytes. Whether they are usable or not, every call returns, and no call panics.
async fn meets(folder: &Folder, bytes: &[u8], what: &str) -> Option<usize> {
    fs::write(folder.file(), bytes).unwrap();
    let store = match EmbeddedLeaseStore::open(folder.file()) {
        Ok(store) => store,
        Err(error) => {
            assert!(error.to_string().contains("leases.redb"), "{what}: {error}");
            return None;
        }
    };
    let call = timeout(PATIENCE, store.leases("default", STREAM)).await.expect("the call returns in time");
    let found = call.as_ref().map_or(0, |leases| leases.rows.len());
    assert!(call.is_err() || found <= 100, "{what}");
    drop(timeout(PATIENCE, store.take(&take("new"))).await.expect("the call returns in time"));
    Some(found)
}

#[tokio::test]
async fn a_truncated_file_is_an_error_and_never_an_empty_store() {
    let folder = Folder::new();
    let full = full_file(&folder).await;
    assert_eq!(meets(&folder, &full, "whole").await, Some(100));
    for length in [1, 8, 9, 100, 320].into_iter().chain((4_096..full.len()).step_by(4_096)) {
        let found = meets(&folder, &full[..length], &format!("cut off at {length}")).await;
        assert!(found.is_none() || found == Some(100), "cut off at {length}: {found:?}");
    }
}

#[tokio::test]
async fn a_file_with_garbage_causes_at_most_an_error() {
    let folder = Folder::new();
    let full = full_file(&folder).await;
    let mut place = 1_usize;
    for round in 0..100 {
        // Tests every part of the file in turn.
        place = (place * 7_919 + 104_729) % full.len();
        let mut bytes = full.clone();
        let end = (place + [1, 16, 4_096][round % 3]).min(bytes.len());
        for byte in &mut bytes[place..end] {
            *byte = !*byte;
        }
        meets(&folder, &bytes, &format!("garbage in {place}..{end}")).await;
    }
}

/// Starts this program again, in a role of [`another_process`].
fn process(role: &str, file: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "another_process", "--ignored", "--nocapture", "--quiet"])
        .env("KINESIS_STREAM_TEST_ROLE", role)
        .env("KINESIS_STREAM_TEST_FILE", file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[tokio::test]
#[ignore = "other tests run it in a separate process"]
async fn another_process() {
    let (Ok(role), Ok(file)) = (env::var("KINESIS_STREAM_TEST_ROLE"), env::var("KINESIS_STREAM_TEST_FILE")) else {
        return;
    };
    let store = match EmbeddedLeaseStore::open(file) {
        Ok(store) => store,
        Err(error) => return println!("\nrefused: {error}"),
    };
    println!("\nopened");
    if role != "writes" {
        return;
    }
    let begins_at = match rows(&store).await.pop() {
        Some(row) => row.counter,
        None => 0,
    };
    store.take(&take(SHARD)).await.unwrap();
    for number in begins_at.. {
        let number = usize::try_from(number).unwrap();
        let (held, checkpoint) = (held(SHARD), after(number));
        let (stored, renewed) = futures::join!(store.checkpoint(&held, &checkpoint), store.renew(&held));
        assert_eq!((stored.unwrap(), renewed.unwrap()), (Write::Applied(()), Write::Applied(())));
        println!("stored {number}");
    }
}

/// The output of the process without the lines of its test runner.
fn words(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    lines.filter(|line| ["opened", "stored ", "refused: "].iter().any(|word| line.starts_with(word)))
}

#[tokio::test]
async fn a_second_process_gets_an_error_with_the_reason_and_the_first_continues() {
    let folder = Folder::new();
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    store.take(&take(SHARD)).await.unwrap();
    let mut second = process("opens", &folder.file());
    let said: Vec<_> = words(&mut second).collect();
    second.wait().unwrap();
    let [said] = said.as_slice() else { panic!("{said:?}") };
    assert!(said.contains("leases.redb: it is open already. One process at a time can have it open"), "{said}");
    assert_eq!(store.checkpoint(&held(SHARD), &after(1)).await.unwrap(), Write::Applied(()));
    drop(store);
    let mut second = process("opens", &folder.file());
    assert_eq!(words(&mut second).collect::<Vec<_>>(), ["opened"]);
    second.wait().unwrap();
}

#[tokio::test]
async fn stored_rows_survive_a_kill_in_the_middle_of_a_write() {
    let folder = Folder::new();
    let mut stored = None;
    for round in 0..12 {
        let mut writer = process("writes", &folder.file());
        let mut words = words(&mut writer);
        assert_eq!(words.next().as_deref(), Some("opened"), "the file of a process that ended can be opened");
        let mut said = words.by_ref().take(round * 3).last();
        writer.kill().unwrap();
        writer.wait().unwrap();
        // Output from before the kill that was not read yet.
        said = words.last().or(said);
        let number = said.map(|said| said.trim_start_matches("stored ").parse::<u64>().unwrap());
        stored = number.or(stored);
        let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
        let Some(row) = rows(&store).await.pop() else {
            assert_eq!(stored, None);
            continue;
        };
        let found = match &row.checkpoint {
            Some(Checkpoint::After(number)) => Some(number.as_str().parse::<u64>().unwrap()),
            None => None,
            other => panic!("{other:?}"),
        };
        assert!(found >= stored, "{stored:?} was stored, and the file has {found:?}");
        assert!((row.epoch, row.owner.as_deref()) == (1, Some("a")));
    }
    assert!(stored.is_some());
}

fn quick() -> KinesisStream {
    KinesisStream::new(STREAM)
        .initial_position(KinesisPosition::horizon())
        .poll_interval(Duration::from_millis(20))
        .reads_per_second(1_000)
        .checkpoint_interval(Duration::from_millis(50))
        .renew_interval(Duration::from_millis(200))
        .lease_ttl(Duration::from_secs(1))
        .list_interval(Duration::from_millis(500))
}

fn broker(kinesis: &Emulator, store: impl LeaseStore) -> KinesisBroker {
    KinesisBroker::new().endpoint(kinesis.endpoint()).test_credentials().lease_store(store)
}

async fn fill(kinesis: &Emulator, from: usize, to: usize) {
    for i in from..to {
        kinesis.put_to_shard(STREAM, SHARD, "key", i.to_string()).await;
    }
}

async fn next(subscription: &mut Subscription) -> Delivery {
    let item = timeout(PATIENCE, subscription.next()).await.expect("an item arrives in time");
    item.expect("the stream has not ended").unwrap()
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload().to_vec()).unwrap()
}

async fn texts(subscription: &mut Subscription, many: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..many {
        let delivery = next(subscription).await;
        texts.push(text(&delivery));
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
    texts
}

fn numbers(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|i| i.to_string()).collect()
}

async fn kinesis() -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 1).await;
    kinesis
}

// S4
#[tokio::test]
async fn two_consumers_on_one_file_both_see_every_record_and_each_resumes_at_its_own_checkpoint() {
    let (kinesis, folder) = (kinesis().await, Folder::new());
    fill(&kinesis, 0, 6).await;
    let mut begins = [0, 0];
    for ends in [[2, 4], [6, 5], [6, 6]] {
        let store = reopened(&folder.file()).await;
        for (consumer, (from, to)) in ["one", "two"].into_iter().zip(begins.into_iter().zip(ends)) {
            let broker = broker(&kinesis, store.clone()).consumer(consumer).connect().await.unwrap();
            let mut subscription = broker.subscribe(quick()).await.unwrap();
            assert_eq!(texts(&mut subscription, to - from).await, numbers(from, to), "consumer {consumer}");
            broker.shutdown().await;
        }
        begins = ends;
    }
}

// R4, E4
#[tokio::test]
async fn a_restarted_consumer_with_the_same_owner_id_takes_its_leases_back_before_they_expire() {
    let (kinesis, folder) = (kinesis().await, Folder::new());
    fill(&kinesis, 0, 4).await;
    let before = folder.0.join("killed.redb");
    {
        let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
        let broker = broker(&kinesis, store).owner_id("archive").connect().await.unwrap();
        let mut subscription = broker.subscribe(quick()).await.unwrap();
        assert_eq!(texts(&mut subscription, 2).await, numbers(0, 2));
        // The file as it would be if the process were killed now.
        fs::copy(folder.file(), &before).unwrap();
        broker.shutdown().await;
    }
    let store = EmbeddedLeaseStore::open(before).unwrap();
    assert_eq!(rows(&store).await[0].owner.as_deref(), Some("archive"));
    let broker = broker(&kinesis, store).owner_id("archive").connect().await.unwrap();
    let mut subscription = broker.subscribe(quick().lease_ttl(10 * PATIENCE)).await.unwrap();
    assert_eq!(texts(&mut subscription, 2).await, numbers(2, 4));
}

// R13
#[tokio::test]
async fn a_consumer_that_settled_no_record_starts_again_where_it_had_started() {
    let (kinesis, folder) = (kinesis().await, Folder::new());
    fill(&kinesis, 0, 5).await;
    let latest = || quick().initial_position(KinesisPosition::latest());
    {
        let broker = broker(&kinesis, reopened(&folder.file()).await).connect().await.unwrap();
        let mut subscription = broker.subscribe(latest()).await.unwrap();
        fill(&kinesis, 5, 15).await;
        for i in 5..10 {
            assert_eq!(text(&next(&mut subscription).await), i.to_string());
        }
    }
    let broker = broker(&kinesis, reopened(&folder.file()).await).connect().await.unwrap();
    let mut subscription = broker.subscribe(latest()).await.unwrap();
    assert_eq!(texts(&mut subscription, 10).await, numbers(5, 15));
    assert!(next(&mut subscription).now_or_never().is_none());
}

// E2, R13, A4
#[tokio::test]
async fn a_lost_answer_of_any_write_neither_loses_nor_repeats_a_record() {
    let kinesis = kinesis().await;
    fill(&kinesis, 0, 6).await;
    for lost in 1..=8 {
        let folder = Folder::new();
        let store = LostAnswer::new(Arc::new(EmbeddedLeaseStore::open(folder.file()).unwrap()), lost);
        let broker_of = |store| broker(&kinesis, store).connect();
        let first = broker_of(Arc::new(store) as Arc<dyn LeaseStore>).await.unwrap();
        let mut tolerant = first.subscribe(quick()).await.unwrap().tolerant();
        for i in 0..3 {
            let delivery = timeout(PATIENCE, tolerant.next()).await.unwrap().unwrap().unwrap();
            assert_eq!(text(&delivery), i.to_string(), "with the answer of write {lost} lost");
            assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
        }
        assert!(tolerant.into_inner().close().await.is_clean());
        drop(first);
        let store = reopened(&folder.file()).await;
        let second = broker_of(Arc::new(store) as Arc<dyn LeaseStore>).await.unwrap();
        let mut subscription = second.subscribe(quick()).await.unwrap();
        assert_eq!(texts(&mut subscription, 3).await, numbers(3, 6), "with the answer of write {lost} lost");
    }
}
