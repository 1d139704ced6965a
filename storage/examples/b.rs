use chimera_engine::port::*;
use chimera_storage::{bench::*, records::*};
use std::sync::Arc;
use std::time::Instant;
struct C;
impl Clock for C {
    fn now(&self) -> chimera_core::time::Timestamp {
        chimera_core::time::Timestamp::from_micros(
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64,
        )
    }
}
struct R;
impl Random for R {
    fn fill(&self, b: &mut [u8]) {
        getrandom::fill(b).unwrap()
    }
}
#[tokio::main]
async fn main() {
    let w = Workload::new(Arc::new(C), Arc::new(R));
    let which = std::env::args().nth(1).unwrap();
    let dir = std::path::PathBuf::from(std::env::args().nth(2).unwrap());
    let store: Arc<dyn Records> = if which == "sqlite" {
        Arc::new(SqliteRecords::open(&dir, Access::Write, Arc::new(C)).unwrap())
    } else {
        let mut o = PostgresOptions::new(std::env::args().nth(2).unwrap());
        if let Some(l) = std::env::args().nth(3) {
            o.lanes = l.parse().unwrap();
        }
        Arc::new(PostgresRecords::open(o).await.unwrap())
    };
    for (writers, txs) in [(1, 500), (64, 12800), (256, 25600), (64, 12800)] {
        let t = Instant::now();
        drive(&store, &w, writers, txs).await.unwrap();
        println!("{writers} writers: {:.0} tx/s", txs as f64 / t.elapsed().as_secs_f64());
    }
    store.close().await;
    for b in [64, 256] {
        let mut t = Instant::now();
        let n = if which == "sqlite" {
            bare_sqlite(&dir.join("bare"), &w, b, 12800 / b, || t = Instant::now())
        } else {
            bare_postgres(&std::env::args().nth(2).unwrap(), &w, 2, b, 12800 / b / 2, || t = Instant::now()).await
        };
        match n {
            Ok(n) => println!("bare {b}: {:.0} tx/s", n as f64 / t.elapsed().as_secs_f64()),
            Err(e) => println!("{e:?}"),
        }
    }
}
