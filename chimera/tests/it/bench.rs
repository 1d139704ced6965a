//! The benchmark's report, and its cleanup. No test asserts on speed.

use crate::support::Workspace;
use chimera_testkit::postgres::PrivatePostgres;

fn report(place: &Workspace, store: &str, lanes: u64) {
    let report = place.json(&["bench", "store", "--transactions", "300"]);
    assert_eq!((&report["record_store"], &report["lanes"]), (&store.into(), &lanes.into()), "{report}");
    for part in ["store", "bare_loop"] {
        let measured = report[part].as_array().unwrap();
        let writers: Vec<u64> = measured.iter().map(|one| one["writers"].as_u64().unwrap()).collect();
        assert_eq!(writers, [1, 64, 256], "{part}");
        for one in measured {
            assert!(one["transactions"].as_u64().unwrap() >= 30 && one["per_second"].as_f64().unwrap() > 0.0, "{one}");
            let batch = one["batch_average"].as_f64().unwrap();
            assert!((1.0..=one["writers"].as_f64().unwrap()).contains(&batch), "{one}");
        }
    }
    for ratio in ["writers_64_to_1", "writers_256_to_1", "store_to_bare_64", "store_to_bare_256"] {
        assert!(report["ratios"][ratio].as_f64().unwrap() > 0.0, "{report}");
    }
    assert!(report["fsync"].is_boolean());
    let left: Vec<_> = std::fs::read_dir(place.path(".chimera")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
}

#[test]
fn the_embedded_store_is_measured_beside_its_bare_loop() {
    let place = Workspace::new();
    // The leftovers of a killed benchmark.
    std::fs::create_dir_all(place.path(".chimera/bench-00112233445566778899aabbccddeeff/bare-1")).unwrap();
    report(&place, "SQLite", 1);
    std::fs::create_dir(place.path(".chimera/bench-notes")).unwrap();
    assert_eq!(place.run(&["bench", "store", "--transactions", "1"]).status, 0);
    assert!(place.path(".chimera/bench-notes").exists(), "a folder that is not the benchmark's was removed");
}

#[test]
fn postgres_is_measured_in_a_schema_of_its_own_that_is_gone_afterwards() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    report(&place, "PostgreSQL", 2);
    assert_eq!(place.run(&["migrate", "--check"]).status, 3, "the benchmark migrated the real schema");
}

#[test]
fn the_front_door_is_measured_beside_the_engine_alone() {
    let url = PrivatePostgres::shared().unwrap().fresh_database().unwrap();
    let place = Workspace::new().env("CHIMERA_DATABASE_URL", &url);
    for (store, name) in [("sqlite", "SQLite"), ("postgres", "PostgreSQL")] {
        let report = place.json(&["bench", "act", "--runs", "40", "--concurrency", "8", "--store", store]);
        assert_eq!((&report["record_store"], &report["runs"], &report["steps"]), (&name.into(), &40.into(), &1.into()));
        for side in ["act", "flow"] {
            assert!(report[side]["per_s"].as_f64().unwrap() > 0.0, "{report}");
        }
        assert!(report["ratio"].as_f64().unwrap() > 0.0 && report["fsync"].is_boolean(), "{report}");
    }
    let left: Vec<_> = std::fs::read_dir(place.path(".chimera")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["lock"]);
    assert_eq!(place.run(&["migrate", "--check"]).status, 3, "the benchmark migrated the real schema");
}

#[test]
fn runs_with_a_limit_are_measured_beside_runs_without() {
    let place = Workspace::new();
    for subject in ["shared", "own"] {
        let report = place.json(&["bench", "flow", "--runs", "40", "--concurrency", "8", "--limit", subject]);
        assert!(
            report["per_s"].as_f64().unwrap() > 0.0 && report["limited"]["ratio"].as_f64().unwrap() > 0.0,
            "{report}"
        );
    }
    let report = place.json(&["bench", "flow", "--runs", "20", "--concurrency", "4"]);
    assert!(report["limited"].is_null(), "{report}");
}
