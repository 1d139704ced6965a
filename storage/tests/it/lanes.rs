//! Lanes under stress: stale epochs, cut connections, two nodes on one database.

use crate::records::{fresh_database, one_lane, postgres, sqlite};
use chimera_core::flow::tables::RUNS;
use chimera_core::limits::{BATCH_TXS_MAX, LANE_QUEUE_MAX};
use chimera_core::record::{Scope, Select, Tx};
use chimera_engine::port::{CommitError, Records};
use chimera_storage::records::{PostgresOptions, PostgresRecords};
use chimera_testkit::build::{entry, run, run_update};
use chimera_testkit::cells::Cells;
use chimera_testkit::postgres::PrivatePostgres;
use chimera_testkit::proxy::{Cut, Proxy};
use chimera_testkit::seeded::Seeded;
use chimera_testkit::suite::records::verify_chains;
use futures::StreamExt;
use futures::future::join_all;
use std::net::SocketAddr;
use std::sync::Arc;

fn audited(seeded: &Seeded) -> Tx {
    let row = run(seeded);
    Tx { entries: vec![entry(seeded, "acme", "made").unwrap()], ..row.tx().unwrap() }
}

async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn through(proxy: &Proxy, url: &str) -> PostgresRecords {
    let port = PrivatePostgres::shared().unwrap().port();
    let url = url.replace(&format!(":{port}/"), &format!(":{}/", proxy.address().port()));
    one_lane(&url).await
}

async fn proxy() -> Proxy {
    let port = PrivatePostgres::shared().unwrap().port();
    Proxy::start(SocketAddr::from(([127, 0, 0, 1], port)), b"COMMIT\0").await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_before_commit_reaches_the_server_ends_in_one_commit() {
    let (url, proxy, seeded) = (fresh_database(), proxy().await, Seeded::new(1));
    let store = through(&proxy, &url).await;
    store.commit(audited(&seeded)).await.unwrap();
    proxy.arm(Cut::BeforeMarker);
    store.commit(audited(&seeded)).await.expect("sent again under a new epoch");
    assert!(proxy.is_spent());
    assert_eq!(verify_chains(&store).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_cut_after_commit_ends_in_a_receipt_and_no_second_commit() {
    let (url, proxy, seeded) = (fresh_database(), proxy().await, Seeded::new(2));
    let store = through(&proxy, &url).await;
    store.commit(audited(&seeded)).await.unwrap();
    proxy.arm(Cut::AfterMarker);
    let receipt = store.commit(audited(&seeded)).await.expect("found in the lane");
    assert!(proxy.is_spent());
    assert_eq!(receipt.first_seq, Some(2));
    assert_eq!(verify_chains(&store).await, 2);
}

/// The server answers such a COMMIT with ROLLBACK, and the driver calls that success.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_server_turned_into_a_rollback_gets_no_receipt_before_it_is_sent_again() {
    let (url, proxy, seeded) = (fresh_database(), proxy().await, Seeded::new(12));
    let store = through(&proxy, &url).await;
    store.commit(audited(&seeded)).await.unwrap();
    let row = run(&seeded);
    let tx = Tx { entries: vec![entry(&seeded, "acme", "made").unwrap()], ..row.tx().unwrap() };
    proxy.replace_next(b"ABORT \0");
    let receipt = store.commit(tx).await.expect("sent again");
    assert!(proxy.is_spent());
    let there = store.read(Select::from(&RUNS, Scope::System).with("id", row.id)).await.unwrap();
    assert_eq!(there.rows.len(), 1, "whoever has a receipt finds what it is for");
    assert_eq!((receipt.first_seq, verify_chains(&store).await), (Some(2), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_epoch_cannot_write() {
    let (url, seeded) = (fresh_database(), Seeded::new(3));
    let store = one_lane(&url).await;
    store.commit(audited(&seeded)).await.unwrap();
    client(&url)
        .await
        .execute("UPDATE ledger_lanes SET epoch = epoch + 1, lease_until = now() + interval '1 hour'", &[])
        .await
        .unwrap();
    assert_eq!(store.commit(audited(&seeded)).await, Err(CommitError::Fenced));
    let receipt = store.commit(audited(&seeded)).await.expect("a new lane was taken");
    assert_eq!((receipt.lane, receipt.epoch), (2, 1));
    assert_eq!(verify_chains(&store).await, 2);
}

#[tokio::test]
async fn a_stale_epoch_cannot_write_to_the_embedded_store_either() {
    let (folder, seeded) = (tempfile::tempdir().unwrap(), Seeded::new(4));
    let store = sqlite(folder.path()).unwrap();
    store.commit(audited(&seeded)).await.unwrap();
    let other = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    other.execute("UPDATE ledger_lanes SET epoch = epoch + 1", []).unwrap();
    assert_eq!(store.commit(audited(&seeded)).await, Err(CommitError::Fenced));
    store.commit(audited(&seeded)).await.expect("the lane was taken anew");
    assert_eq!(verify_chains(&store).await, 2);
}

#[tokio::test]
async fn two_writers_on_one_file_fence_each_other_and_break_no_chain() {
    let (folder, seeded) = (tempfile::tempdir().unwrap(), Seeded::new(9));
    let (one, two) = (sqlite(folder.path()).unwrap(), sqlite(folder.path()).unwrap());
    let mut kept = 0;
    for turn in 0..40 {
        // Fenced at first, then the lane is its own again until the other node's turn.
        let store = if turn % 4 < 2 { &one } else { &two };
        match store.commit(audited(&seeded)).await {
            Ok(_) => kept += 1,
            Err(CommitError::Fenced) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(kept >= 10, "somebody must get through");
    assert_eq!(verify_chains(&one).await, kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_on_one_database_never_break_a_chain() {
    let url = fresh_database();
    let (one, two) = (postgres(&url).await, postgres(&url).await);
    let stores = [Arc::new(one), Arc::new(two)];
    let tasks = (0..8_u64).map(|n| {
        let store = Arc::clone(&stores[n as usize % 2]);
        tokio::spawn(async move {
            let seeded = Seeded::new(100 + n);
            for affinity in 0..40 {
                store.commit(Tx { affinity, ..audited(&seeded) }).await.unwrap();
            }
        })
    });
    join_all(tasks).await.into_iter().for_each(|task| task.unwrap());
    assert_eq!(verify_chains(stores[0].as_ref()).await, 320);
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_touch_the_same_rows_never_deadlock() {
    let url = fresh_database();
    let store =
        Arc::new(PostgresRecords::open(PostgresOptions { lanes: 4, ..PostgresOptions::new(&url) }).await.unwrap());
    let seeded = Seeded::new(5);
    let rows: Vec<_> = (0..6).map(|_| run(&seeded)).collect();
    for row in &rows {
        store.commit(row.tx().unwrap()).await.unwrap();
    }
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let tasks = (0..16_u64).map(|n| {
        let (store, ids) = (Arc::clone(&store), ids.clone());
        tokio::spawn(async move {
            let seeded = Seeded::new(n);
            let mut won = 0;
            for _ in 0..25 {
                let (a, b) = (*seeded.pick(&ids), *seeded.pick(&ids));
                let mut tx = Tx { affinity: n, ..Tx::default() };
                for id in if a == b { vec![a] } else { vec![a, b] } {
                    let row = store.read(Select::from(&RUNS, Scope::System).with("id", id));
                    let version = row.await.unwrap().rows[0].int("state_version");
                    tx.updates.push(run_update(id, version, "running").unwrap());
                }
                match store.commit(tx).await {
                    Ok(_) => won += 1,
                    Err(CommitError::Conflict(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            won
        })
    });
    let won: i32 = join_all(tasks).await.into_iter().map(|task| task.unwrap()).sum();
    assert!(won > 0);
    let client = client(&url).await;
    let deadlocks: i64 = client
        .query_one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(deadlocks, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_server_is_told_and_found_again() {
    let server = PrivatePostgres::start().unwrap();
    let store = postgres(&server.url()).await;
    let seeded = Seeded::new(6);
    store.commit(audited(&seeded)).await.unwrap();
    server.stop().unwrap();
    assert!(matches!(store.commit(audited(&seeded)).await, Err(CommitError::Unavailable(_))));
    assert!(store.ready().await.is_err());
    server.restart().unwrap();
    let back = async {
        while store.ready().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), back).await.expect("it comes back by itself");
    store.commit(audited(&seeded)).await.unwrap();
    assert_eq!(verify_chains(&store).await, 2);
    store.close().await;
}

/// Breaks the ledger's table from outside and expects changes to be rejected until it is repaired.
async fn without_a_ledger(store: &dyn Records, seeded: &Seeded, hurt: impl AsyncFn(), mend: impl AsyncFn()) {
    store.commit(audited(seeded)).await.unwrap();
    hurt().await;
    let row = run(seeded);
    let tx = Tx { entries: vec![entry(seeded, "acme", "made").unwrap()], ..row.tx().unwrap() };
    let refused = store.commit(tx.clone()).await;
    assert!(matches!(refused, Err(CommitError::Unavailable(_))), "{refused:?}");
    let found = store.read(Select::from(&RUNS, Scope::System).with("id", row.id)).await.unwrap();
    assert!(found.rows.is_empty(), "an act without its audit entry");
    assert!(store.ready().await.is_err());
    mend().await;
    assert_eq!(store.ready().await, Ok(()));
    store.commit(tx).await.unwrap();
    assert_eq!(verify_chains(store).await, 2);
}

/// CONTENT-124, CONTENT-123
#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_audit_entry_cannot_be_written_does_not_happen() {
    let (url, seeded) = (fresh_database(), Seeded::new(7));
    let (store, client) = (one_lane(&url).await, client(&url).await);
    let run = |text: &'static str| client.batch_execute(text);
    let hurt = async || run("ALTER TABLE audit_log_entries ADD CONSTRAINT no CHECK (false) NOT VALID").await.unwrap();
    let mend = async || run("ALTER TABLE audit_log_entries DROP CONSTRAINT no").await.unwrap();
    without_a_ledger(&store, &seeded, hurt, mend).await;
}

/// CONTENT-124, CONTENT-123
#[tokio::test]
async fn a_change_whose_audit_entry_cannot_be_written_does_not_happen_on_the_embedded_store() {
    let (folder, seeded) = (tempfile::tempdir().unwrap(), Seeded::new(8));
    let store = sqlite(folder.path()).unwrap();
    let other = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    other.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    let hurt = async || other.execute_batch("ALTER TABLE audit_log_entries RENAME COLUMN salt TO gone").unwrap();
    let mend = async || other.execute_batch("ALTER TABLE audit_log_entries RENAME COLUMN gone TO salt").unwrap();
    without_a_ledger(&store, &seeded, hurt, mend).await;
}

#[tokio::test]
async fn more_than_may_wait_is_refused_at_once_and_the_rest_is_done() {
    let (folder, seeded) = (tempfile::tempdir().unwrap(), Seeded::new(10));
    let store = sqlite(folder.path()).unwrap();
    store.commit(audited(&seeded)).await.unwrap();
    let other = rusqlite::Connection::open(folder.path().join("chimera.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let room = LANE_QUEUE_MAX + BATCH_TXS_MAX + 1;
    let sent: Vec<_> =
        (0..2 * room).map(|_| Tx { entries: vec![entry(&seeded, "acme", "made").unwrap()], ..Tx::default() }).collect();
    let mut waiting = futures::stream::FuturesUnordered::from_iter(sent.into_iter().map(|tx| store.commit(tx)));
    let first = waiting.next().await.unwrap();
    assert_eq!(first, Err(CommitError::Overloaded), "the store is held, so the first answer is a refusal");
    other.execute_batch("ROLLBACK").unwrap();
    let (mut done, mut refused) = (0, 1);
    while let Some(answer) = waiting.next().await {
        match answer {
            Ok(_) => done += 1,
            Err(CommitError::Overloaded) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(done + refused, 2 * room);
    assert!(done >= LANE_QUEUE_MAX, "{done} done, {refused} refused: what had a place was not done");
    assert_eq!(verify_chains(&store).await, done + 1);
}

#[tokio::test]
async fn nothing_is_acknowledged_into_a_data_file_that_was_removed() {
    let (folder, seeded) = (tempfile::tempdir().unwrap(), Seeded::new(11));
    let store = sqlite(folder.path()).unwrap();
    store.commit(audited(&seeded)).await.unwrap();
    let (path, aside) = (folder.path().join("chimera.db"), folder.path().join("aside.db"));
    std::fs::rename(&path, &aside).unwrap();
    let refused = store.commit(audited(&seeded)).await;
    assert!(matches!(&refused, Err(CommitError::Unavailable(why)) if why.reason.contains("removed")), "{refused:?}");
    assert!(store.ready().await.is_err());
    std::fs::write(&path, b"").unwrap();
    assert!(store.ready().await.is_err(), "another file in its place is not it");
    std::fs::rename(&aside, &path).unwrap();
    let back = async {
        while store.ready().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), back).await.expect("it is the same file again");
    store.commit(audited(&seeded)).await.unwrap();
    assert_eq!(verify_chains(&store).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_costs_an_epoch_and_no_lane() {
    let (url, seeded) = (fresh_database(), Seeded::new(12));
    let (store, client) = (one_lane(&url).await, client(&url).await);
    for _ in 0..5 {
        let receipt = loop {
            match store.commit(audited(&seeded)).await {
                Ok(receipt) => break receipt,
                // The cut may come before or after the connection notices.
                Err(CommitError::Unavailable(_)) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        };
        assert_eq!(receipt.lane, 1);
        let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE application_name = 'chimera' AND datname = current_database()";
        client.execute(cut, &[]).await.unwrap();
    }
    let lanes: i64 = client.query_one("SELECT count(*) FROM ledger_lanes", &[]).await.unwrap().get(0);
    assert_eq!(lanes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ledger_has_no_more_lanes_than_may_be() {
    let (url, seeded) = (fresh_database(), Seeded::new(13));
    postgres(&url).await.close().await;
    let client = client(&url).await;
    let fill = "DELETE FROM ledger_lanes; INSERT INTO ledger_lanes (lane, epoch, head_seq, head_hash, lease_until) \
                SELECT n, 1, 0, decode(repeat('00', 32), 'hex'), now() + interval '1 hour' FROM generate_series(1, 1000) AS n";
    client.batch_execute(fill).await.unwrap();
    let store = one_lane(&url).await;
    let refused = store.commit(audited(&seeded)).await;
    assert!(matches!(&refused, Err(CommitError::Unavailable(why)) if why.reason.contains("every lane")), "{refused:?}");
    client.batch_execute("UPDATE ledger_lanes SET lease_until = '-infinity' WHERE lane = 7").await.unwrap();
    let receipt = loop {
        if let Ok(receipt) = store.commit(audited(&seeded)).await {
            break receipt;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((receipt.lane, receipt.epoch), (7, 2));
}
