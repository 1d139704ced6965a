//! Following a run: from the ledger, without a gap, without a repetition, to its end.

use super::{FlowServer, code, furnished, house, path, reviewed, setup};
use chimera_core::ledger::{ActorType, SubjectType};
use chimera_core::record::Tx;
use chimera_engine::flow;
use chimera_engine::ledger::audit::{EventRecord, Writer};
use chimera_engine::port::Records;
use chimera_testkit::flow::TENANT;
use chimera_testkit::memory::MemoryRecords;
use reqwest::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// A stream that is being read.
struct Stream {
    answer: Response,
    text: String,
}

/// One event: number, type, document.
type ReceivedEvent = (i64, String, Value);

impl Stream {
    async fn open(house: &FlowServer, run: &Value, query: &str, last: Option<&str>) -> Self {
        let request = house
            .client
            .get(house.server.url(&path(run, &format!("/events{query}"))))
            .bearer_auth(house.token("admin"));
        let request = last.iter().fold(request, |request, last| request.header("last-event-id", *last));
        let answer = request.send().await.unwrap();
        Self { answer, text: String::new() }
    }

    /// The next event; none at the end.
    async fn next(&mut self) -> Option<ReceivedEvent> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let line = block.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
                    line.map(str::to_owned)
                };
                let heard = field("data").map(|data| {
                    (
                        field("id").unwrap().parse().unwrap(),
                        field("event").unwrap(),
                        serde_json::from_str(&data).unwrap(),
                    )
                });
                self.text = rest.to_owned();
                if heard.is_some() {
                    return heard;
                }
                continue;
            }
            let chunk = self.answer.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn numbers(mut self) -> Vec<i64> {
        let mut numbers = Vec::new();
        while let Some((number, _, _)) = self.next().await {
            numbers.push(number);
        }
        numbers
    }
}

#[tokio::test]
async fn a_cut_stream_goes_on_where_it_was_and_ends_with_the_run() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let mut stream = Stream::open(&house, &run, "", None).await;
    assert_eq!(stream.answer.headers()["content-type"], "text/event-stream");
    assert_eq!(stream.answer.headers()["cache-control"], "no-store");
    let mut seen = Vec::new();
    while seen.last().is_none_or(|(_, kind, _): &ReceivedEvent| kind != "approval.requested") {
        seen.push(stream.next().await.unwrap());
    }
    drop(stream);
    assert_eq!(house.post(&path(&run, "/approve"), json!({"decision": "approve"})).await.0, 200);
    let last = seen.last().unwrap().0.to_string();
    let mut stream = Stream::open(&house, &run, "?after=0", Some(&last)).await;
    while let Some(heard) = stream.next().await {
        seen.push(heard);
    }
    let numbers: Vec<i64> = seen.iter().map(|(number, _, _)| *number).collect();
    assert_eq!(numbers, (1..=i64::try_from(numbers.len()).unwrap()).collect::<Vec<_>>());
    assert_eq!((seen[0].1.as_str(), seen.last().unwrap().1.as_str()), ("run.started", "run.completed"));
    for (number, kind, document) in &seen {
        assert_eq!((&document["run_seq"], &document["event_type"]), (&json!(number), &json!(kind)));
    }
    let total = numbers.len();
    let over = Stream::open(&house, &run, "", Some(&total.to_string())).await;
    assert_eq!(over.answer.status(), 204);
    assert_eq!(Stream::open(&house, &run, "?after=2", None).await.numbers().await, numbers[2..]);
}

#[tokio::test]
async fn a_follower_sees_what_happens_while_it_listens_and_the_undoing_too() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    let mut stream = Stream::open(&house, &run, "", None).await;
    while stream.next().await.unwrap().1 != "approval.requested" {}
    assert_eq!(house.post(&path(&run, "/approve"), json!({"decision": "approve"})).await.0, 200);
    let mut last = 0;
    while let Some((number, _, _)) = stream.next().await {
        last = number;
    }
    house.until(&run, "completed").await;
    assert_eq!(house.post(&path(&run, "/rollback"), json!({})).await.0, 202);
    let mut stream = Stream::open(&house, &run, &format!("?after={last}"), None).await;
    let mut kinds = Vec::new();
    while let Some((_, kind, _)) = stream.next().await {
        kinds.push(kind);
    }
    assert_eq!(kinds.last().map(String::as_str), Some("run.rolled_back"), "{kinds:?}");
}

#[tokio::test]
async fn a_place_that_is_no_number_is_refused() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    for (query, last) in [("?after=x", None), ("?from=1", None), ("", Some("abc"))] {
        let answer = Stream::open(&house, &run, query, last).await.answer;
        assert_eq!(answer.status(), 400, "{query} {last:?}");
        assert_eq!(code(&answer.json().await.unwrap()), "SCHEMA_INVALID");
    }
}

#[tokio::test]
async fn streams_are_bounded_and_end_when_the_server_stops() {
    let house = furnished(setup(), |edge| edge.with_streams_max(1, 8)).await;
    let run = house.run(&reviewed(), json!({})).await;
    let mut first = Stream::open(&house, &run, "", None).await;
    first.next().await.unwrap();
    let second = Stream::open(&house, &run, "", None).await.answer;
    assert_eq!((second.status().as_u16(), second.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    assert_eq!(code(&second.json().await.unwrap()), "OVERLOADED");
    house.server.edge.begin_stopping();
    while first.next().await.is_some() {}
}

#[tokio::test]
async fn one_actor_does_not_take_every_stream() {
    let house = furnished(setup(), |edge| edge.with_streams_max(8, 1)).await;
    let run = house.run(&reviewed(), json!({})).await;
    let mut first = Stream::open(&house, &run, "", None).await;
    first.next().await.unwrap();
    let second = Stream::open(&house, &run, "", None).await.answer;
    assert_eq!(second.status(), 503);
    let problem: Value = second.json().await.unwrap();
    assert_eq!(code(&problem), "OVERLOADED");
    assert!(problem["detail"].as_str().unwrap().starts_with("admin has reached its limit of 1"), "{problem}");
    let url = house.server.url(&path(&run, "/events"));
    let other = house.client.get(url).bearer_auth(house.token("user_ann")).send().await.unwrap();
    assert_eq!(other.status(), 200, "others find room");
}

/// A run that was taken over is written through another lane, which may have the smaller number.
#[tokio::test]
async fn entries_of_several_lanes_are_paged_by_their_number() {
    let stage = setup().unkept().open_on(Arc::new(MemoryRecords::with_lanes(2))).await;
    let run = Uuid::from_u128(7);
    let writer = Writer { random: &*stage.world.random, clock: &*stage.world.clock };
    let records: &dyn Records = &*stage.records;
    let lanes: Vec<i64> = (0..8).filter_map(|affinity| records.lane(affinity)).map(|held| held.lane).collect();
    let (highest, lowest) = (lanes.iter().max().unwrap(), lanes.iter().min().unwrap());
    assert_ne!(highest, lowest, "the store has one lane only");
    for (lane, numbers) in [(highest, 1..=30), (lowest, 31..=60)] {
        let affinity = lanes.iter().position(|held| held == lane).unwrap() as u64;
        let mut tx = Tx { affinity, ..Tx::default() };
        for number in numbers {
            let event = EventRecord {
                tenant_id: TENANT.to_owned(),
                subject_type: SubjectType::Other,
                subject_id: run.to_string(),
                event_type: "step.completed".to_owned(),
                actor_type: ActorType::System,
                actor_id: None,
                data: json!({}),
                run_id: Some(run),
                run_seq: Some(number),
                trace_id: None,
                operator_of: None,
            };
            writer.event(&mut tx, event).unwrap();
        }
        records.commit(tx).await.unwrap();
    }
    let (mut seen, mut after) = (Vec::new(), 0);
    while after < 60 {
        let events = flow::events(&stage.flow, &stage.permit("admin"), run, after, 7).await.unwrap();
        seen.extend(events.iter().map(|event| event.run_seq));
        after += 7;
    }
    assert_eq!(seen, (1..=60).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_place_that_no_event_can_have_is_refused() {
    let house = house().await;
    let run = house.run(&reviewed(), json!({})).await;
    for last in ["-1", "", "abc", "1.5", "99999999999999999999"] {
        let request = house.client.get(house.server.url(&path(&run, "/events"))).bearer_auth(house.token("admin"));
        let answer = request.header("last-event-id", last).send().await.unwrap();
        assert_eq!(answer.status(), 400, "{last:?}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(code(&problem), "SCHEMA_INVALID");
        assert!(problem["detail"].as_str().unwrap().starts_with("Last-Event-ID must be an event number"), "{problem}");
    }
    let (status, problem) = house.get(&path(&run, "/events?after=-1")).await;
    assert_eq!((status, code(&problem)), (400, "SCHEMA_INVALID"));
}
