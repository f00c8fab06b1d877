//! The recipes of the cookbook inside `tokio::spawn`, with state that their closures borrow or own. The compiler checks
//! that they are `Send` and `'static`, and the emulator that each of them handles and settles every record.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{
    collections::BTreeSet,
    io,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use kinesis_stream::{Checkpoint, LeaseStore, MemoryLeaseStore, TryMapError, prelude::*};
use kinesis_stream_support::Emulator;
use tokio::{
    select,
    task::JoinHandle,
    time::{Duration, interval, sleep, timeout},
};

const STREAM: &str = "quakes";
const COPY: &str = "copy";
const RECORDS: usize = 20;

/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_mins(1);

/// What the handlers work with. It is not `Clone`.
#[derive(Default)]
struct Database {
    rows: Mutex<BTreeSet<String>>,
}

impl Database {
    async fn insert(&self, row: &[u8]) -> io::Result<()> {
        tokio::task::yield_now().await;
        self.rows.lock().unwrap().insert(String::from_utf8(row.to_vec()).map_err(io::Error::other)?);
        Ok(())
    }

    async fn insert_all<T: AsRef<[u8]> + Sync>(&self, rows: &[Delivery<T>]) -> io::Result<()> {
        for row in rows {
            self.insert(row.payload().as_ref()).await?;
        }
        Ok(())
    }
}

/// The error of a program.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Kinesis(#[from] KinesisError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

type Work = JoinHandle<Result<(), Failure>>;

/// A program in a task of its own.
type Recipe = fn(Subscription, Publisher, Arc<Database>) -> Work;

fn text(delivery: Delivery) -> Delivery<String> {
    delivery.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

const MANY_AT_ONCE: &[(&str, Recipe)] = &[
    ("try_for_each_concurrent with borrowed state", |quakes, _, database| {
        tokio::spawn(async move {
            let store_one = async |quake: Delivery| match database.insert(quake.payload()).await {
                Ok(()) => Ok(quake.commit().await.map(drop)?),
                Err(error) => {
                    quake.nack_because(error);
                    Ok(())
                }
            };
            quakes.tolerant().err_into::<Failure>().try_for_each_concurrent(64, store_one).await
        })
    }),
    ("try_for_each_concurrent that owns its state", |quakes, _, database| {
        tokio::spawn(quakes.tolerant().err_into().try_for_each_concurrent(64, move |quake| {
            let database = Arc::clone(&database);
            async move {
                database.insert(quake.payload()).await?;
                Ok(quake.commit().await.map(drop)?)
            }
        }))
    }),
    ("for_each_concurrent", |quakes, _, database| {
        tokio::spawn(async move {
            let keep = async |item: Result<Delivery, KinesisError>| match item {
                Ok(delivery) => match database.insert(delivery.payload()).await {
                    Ok(()) => delivery.ack(),
                    Err(error) => delivery.nack_because(error),
                },
                Err(error) => eprintln!("{error}"),
            };
            quakes.for_each_concurrent(64, keep).await;
            Ok(())
        })
    }),
    ("try_buffer_unordered and try_fold", |quakes, _, database| {
        tokio::spawn(async move {
            let count = quakes
                .tolerant()
                .err_into::<Failure>()
                .map_ok(async |delivery| {
                    database.insert(delivery.payload()).await?;
                    delivery.commit().await?;
                    Ok(1)
                })
                .try_buffer_unordered(64)
                .try_fold(0, async |sum, rows| Ok(sum + rows));
            assert_eq!(count.await?, RECORDS);
            Ok(())
        })
    }),
    ("buffered, and a loop over the results", |quakes, _, database| {
        tokio::spawn(async move {
            let located = quakes
                .tolerant()
                .map(async |item| {
                    let delivery = item?;
                    database.insert(delivery.payload()).await?;
                    Ok::<_, Failure>(delivery.map(|bytes| bytes.len()))
                })
                .buffered(64);
            let mut located = pin!(located);
            while let Some(delivery) = located.try_next().await? {
                assert_ne!(*delivery.payload(), 0);
                delivery.ack();
            }
            Ok(())
        })
    }),
];

const LOOPS: &[(&str, Recipe)] = &[
    ("a loop with state that it changes", |quakes, _, database| {
        tokio::spawn(async move {
            let mut seen = 0;
            let mut quakes = quakes.tolerant();
            while let Some(quake) = quakes.try_next().await? {
                database.insert(quake.payload()).await?;
                seen += 1;
                quake.commit().await?;
            }
            assert_eq!(seen, RECORDS);
            Ok(())
        })
    }),
    ("a loop over a pinned pipeline", |quakes, _, database| {
        tokio::spawn(async move {
            let decoded = quakes.tolerant().try_filter_map(async |quake| {
                let text = quake.try_map(|bytes| String::from_utf8(bytes.to_vec()));
                Ok(text.map_err(TryMapError::reject).ok())
            });
            let mut decoded = pin!(decoded);
            while let Some(quake) = decoded.try_next().await? {
                database.insert(quake.payload().as_ref()).await?;
                quake.ack();
            }
            Ok(())
        })
    }),
    ("a loop that goes on after an error", |mut quakes, _, database| {
        tokio::spawn(async move {
            while let Some(next) = quakes.next().await {
                match next {
                    Ok(quake) => match database.insert(quake.payload()).await {
                        Ok(()) => quake.ack(),
                        Err(error) => quake.nack_because(error),
                    },
                    Err(error) if error.class() == ErrorClass::Fatal => return Err(error.into()),
                    Err(error) => eprintln!("{error}"),
                }
            }
            Ok(())
        })
    }),
    ("a loop over a stream merged with a ticker", |quakes, _, database| {
        enum Event {
            Quake(Delivery),
            Tick,
            End,
        }
        tokio::spawn(async move {
            let records = quakes.tolerant().map_ok(Event::Quake).chain(stream::iter([Ok(Event::End)]));
            let ticks = stream::unfold(interval(Duration::from_secs(10)), async |mut ticker| {
                ticker.tick().await;
                Some((Ok(Event::Tick), ticker))
            });
            let mut events = pin!(stream::select(records, ticks));
            while let Some(event) = events.try_next().await? {
                match event {
                    Event::Quake(delivery) => {
                        database.insert(delivery.payload()).await?;
                        delivery.ack();
                    }
                    Event::Tick => {}
                    Event::End => break,
                }
            }
            Ok(())
        })
    }),
    ("a loop with a time limit", |mut quakes, _, database| {
        tokio::spawn(async move {
            let mut some = (&mut quakes).take_until(Box::pin(sleep(Duration::from_hours(1))));
            while let Some(delivery) = some.try_next().await? {
                database.insert(delivery.payload()).await?;
                delivery.ack();
            }
            assert!(quakes.close().await.is_clean());
            Ok(())
        })
    }),
    ("long work that watches its lease", |quakes, _, database| {
        tokio::spawn(async move {
            let work = async |delivery: Delivery| {
                let lease = delivery.lease();
                select! {
                    done = database.insert(delivery.payload()) => {
                        done?;
                        delivery.commit().await?;
                    }
                    () = lease.lost() => {}
                }
                Ok(())
            };
            quakes.tolerant().err_into::<Failure>().try_for_each_concurrent(8, work).await
        })
    }),
    ("a closure that sees the hidden errors", |quakes, _, database| {
        tokio::spawn(async move {
            let hidden = AtomicUsize::new(0);
            let note = |_: &KinesisError| {
                hidden.fetch_add(1, Ordering::Relaxed);
            };
            let store_one = async |quake: Delivery| {
                database.insert(quake.payload()).await?;
                Ok(quake.commit().await.map(drop)?)
            };
            quakes.tolerant_with(note).err_into::<Failure>().try_for_each_concurrent(8, store_one).await?;
            assert_eq!(hidden.load(Ordering::Relaxed), 0);
            Ok(())
        })
    }),
];

const BATCHES: &[(&str, Recipe)] = &[
    ("a loop over batches", |quakes, _, database| {
        tokio::spawn(async move {
            let mut batches = quakes.tolerant().batches(500)?;
            while let Some(batch) = batches.try_next().await? {
                match database.insert_all(batch.deliveries()).await {
                    Ok(()) => drop(batch.commit().await?),
                    Err(error) => batch.nack_because(error),
                }
            }
            Ok(())
        })
    }),
    ("several batches at once", |quakes, _, database| {
        tokio::spawn(async move {
            let store = async |batch: Batch| {
                database.insert_all(batch.deliveries()).await?;
                batch.commit_except(|_, delivery| delivery.payload().is_empty()).await?;
                Ok(())
            };
            quakes.tolerant().batches_by_shard(3)?.err_into::<Failure>().try_for_each_concurrent(4, store).await
        })
    }),
    ("batches with a handler", |quakes, _, database| {
        tokio::spawn(async move {
            let batches = quakes.tolerant().batches(3)?;
            Ok(batches.process(8, async |batch| database.insert_all(batch.deliveries()).await).await?)
        })
    }),
    ("batches with a handler, in order", |quakes, _, database| {
        tokio::spawn(async move {
            let handler = async |batch: Arc<Batch>| {
                let mut failures = BatchFailures::none();
                for (index, quake) in batch.iter().enumerate() {
                    if let Err(error) = database.insert(quake.payload()).await {
                        failures.retry(index, error);
                    }
                }
                Ok::<_, io::Error>(failures)
            };
            Ok(quakes.tolerant().batches(3)?.process(8, handler).in_order().await?)
        })
    }),
    ("batches behind an async closure, with a handler that owns its state", |quakes, _, database| {
        tokio::spawn(async move {
            let other = Arc::clone(&database);
            let decoded = quakes.tolerant().err_into::<Failure>().and_then(async |quake| {
                other.insert(quake.payload()).await?;
                Ok(text(quake))
            });
            let handler = move |batch: Arc<Batch<String>>| {
                let database = Arc::clone(&database);
                async move {
                    database.insert_all(batch.deliveries()).await?;
                    Ok::<_, io::Error>(BatchFailures::none())
                }
            };
            decoded.batches(500)?.process(8, handler).await
        })
    }),
    ("batches that are decoded", |quakes, _, database| {
        tokio::spawn(async move {
            let store = async |batch: Batch| {
                let (texts, malformed) = batch.try_map(|bytes| String::from_utf8(bytes.to_vec()));
                malformed.into_iter().for_each(TryMapError::reject);
                database.insert_all(texts.deliveries()).await?;
                Ok(texts.commit().await.map(drop)?)
            };
            quakes.tolerant().batches(500)?.err_into::<Failure>().try_for_each(store).await
        })
    }),
    ("chunks behind an async closure", |quakes, _, database| {
        tokio::spawn(async move {
            quakes
                .tolerant()
                .err_into::<Failure>()
                .and_then(async |quake| {
                    database.insert(quake.payload()).await?;
                    Ok(quake)
                })
                .chunks_timeout(500, Duration::from_millis(50))
                .map(|chunk| chunk.into_iter().collect::<Result<Vec<_>, Failure>>())
                .try_for_each(async |chunk| {
                    database.insert_all(&chunk).await?;
                    Ok(commit_all(chunk).await.map(drop)?)
                })
                .await
        })
    }),
    ("chunks of what was made of deliveries", |quakes, _, database| {
        tokio::spawn(async move {
            quakes
                .tolerant()
                .err_into::<Failure>()
                .map_ok(async |quake| {
                    database.insert(quake.payload()).await?;
                    Ok((quake.payload().len(), Acker::from(quake)))
                })
                .try_buffered(64)
                .try_chunks_timeout(500, Duration::from_millis(50))
                .try_for_each(async |chunk| {
                    let (sizes, ackers): (Vec<usize>, Vec<Acker>) = chunk.into_iter().unzip();
                    assert!(sizes.iter().all(|size| *size > 0));
                    Ok(commit_all(ackers).await.map(drop)?)
                })
                .await
        })
    }),
    ("chunks behind buffer_by_key", |quakes, _, database| {
        tokio::spawn(async move {
            quakes
                .tolerant()
                .err_into::<Failure>()
                .buffer_by_key(8, async |quake| {
                    database.insert(quake.payload()).await?;
                    Ok(quake)
                })
                .try_chunks_timeout(500, Duration::from_millis(50))
                .try_for_each(async |chunk| {
                    database.insert_all(&chunk).await?;
                    Ok(commit_all(chunk).await.map(drop)?)
                })
                .await
        })
    }),
    ("chunks without a timer", |quakes, _, database| {
        tokio::spawn(async move {
            let mut chunks = quakes.tolerant().ready_chunks(500);
            while let Some(chunk) = chunks.next().await {
                let chunk: Vec<Delivery> = chunk.into_iter().collect::<Result<_, _>>()?;
                database.insert_all(&chunk).await?;
                commit_all(chunk).await?;
            }
            Ok(())
        })
    }),
];

const ORDER_AND_SINKS: &[(&str, Recipe)] = &[
    ("work in the order of each key", |quakes, _, database| {
        tokio::spawn(async move {
            let results = quakes.tolerant().buffer_by_key(32, async |quake| {
                match database.insert(quake.payload()).await {
                    Ok(()) => quake.ack(),
                    Err(error) => quake.nack_because(error),
                }
                Ok(())
            });
            Ok(results.try_for_each(async |()| Ok(())).await?)
        })
    }),
    ("work in the order of each shard", |quakes, _, database| {
        tokio::spawn(async move {
            let results = quakes.tolerant().err_into::<Failure>().buffer_by_shard(8, async |quake| {
                database.insert(quake.payload()).await?;
                Ok(quake.commit().await?)
            });
            results.try_for_each(async |_| Ok(())).await
        })
    }),
    ("one record at a time into another stream", |quakes, publisher, database| {
        tokio::spawn(async move {
            let results = quakes.tolerant().err_into::<Failure>().buffer_by_key(32, async |quake| {
                let copy = Outgoing::new(quake.partition_key().unwrap_or("none"), quake.payload().clone());
                publisher.publish(COPY, copy).await?;
                database.insert(quake.payload()).await?;
                Ok(quake.commit().await?)
            });
            results.try_for_each(async |_| Ok(())).await
        })
    }),
    ("large requests into another stream", |quakes, publisher, database| {
        tokio::spawn(async move {
            let copies = publisher.sink(COPY)?;
            quakes
                .tolerant()
                .err_into::<Failure>()
                .try_filter_map(async |quake| {
                    database.insert(quake.payload()).await?;
                    let key = quake.partition_key().unwrap_or("none");
                    Ok(Some((Outgoing::new(key, quake.payload().clone()), Acker::from(quake))))
                })
                // Without it, the compiler rejects `forward` behind an async closure in a task.
                .boxed()
                .forward(copies.sink_err_into())
                .await
        })
    }),
    ("a sink that settles", |quakes, _, database| {
        tokio::spawn(async move {
            let table = sink::unfold((), async |(), delivery: Delivery| {
                database.insert(delivery.payload()).await?;
                delivery.commit().await?;
                Ok::<_, Failure>(())
            });
            quakes.tolerant().err_into().forward(table).await
        })
    }),
];

/// Runs a recipe on a stream with records until all are settled, then closes the subscription.
async fn run(name: &str, recipe: Recipe) {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 1).await;
    kinesis.create_stream(COPY, 1).await;
    kinesis.put_all(STREAM, (0..RECORDS).map(|i| (format!("key {}", i % 4), format!("record {i}")))).await;
    let shard = &kinesis.shards(STREAM).await[0].id;
    let last = kinesis.records(STREAM, shard).await.pop().map(|record| record.sequence_number).unwrap();
    let (store, database) = (MemoryLeaseStore::new(), Arc::new(Database::default()));
    let broker = KinesisBroker::new().endpoint(kinesis.endpoint()).test_credentials().lease_store(store.clone());
    let broker = broker.connect().await.unwrap();
    let quick = KinesisStream::new(STREAM)
        .initial_position(KinesisPosition::horizon())
        .poll_interval(Duration::from_millis(20))
        .reads_per_second(1_000)
        .checkpoint_interval(Duration::from_millis(50));
    let quakes = broker.subscribe(quick).await.unwrap();
    let closer = quakes.closer();
    let work = recipe(quakes, broker.publisher(), Arc::clone(&database));
    let settled = async {
        let after_last = Some(Checkpoint::After(last.into()));
        while store.leases("default", STREAM).await.unwrap()[0].checkpoint != after_last {
            assert!(!work.is_finished(), "{name} goes on as long as the stream does");
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, settled).await.expect(name);
    assert!(closer.close().await.is_clean(), "{name}");
    timeout(PATIENCE, work).await.expect(name).expect(name).expect(name);
    let expected: BTreeSet<String> = (0..RECORDS).map(|i| format!("record {i}")).collect();
    assert_eq!(*database.rows.lock().unwrap(), expected, "{name}");
}

async fn run_all(recipes: &[(&str, Recipe)]) {
    future::join_all(recipes.iter().map(|(name, recipe)| run(name, *recipe))).await;
}

// A1
#[tokio::test]
async fn many_records_at_once_in_a_task_of_their_own() {
    run_all(MANY_AT_ONCE).await;
}

// A1, X2
#[tokio::test]
async fn loops_in_a_task_of_their_own() {
    run_all(LOOPS).await;
}

// A1, A8
#[tokio::test]
async fn batches_and_chunks_in_a_task_of_their_own() {
    run_all(BATCHES).await;
}

// A1, A7
#[tokio::test]
async fn ordered_work_and_sinks_in_a_task_of_their_own() {
    run_all(ORDER_AND_SINKS).await;
}
