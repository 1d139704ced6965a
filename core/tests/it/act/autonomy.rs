//! Autonomy levels for actors, plans and requests.

use super::given::{cases, note, plan, scored, tool};
use chimera_core::access::Level;
use chimera_core::act::{AutonomyFacts, OverrideForbidden, determine_autonomy_level};
use chimera_core::flow::plan::Plan;
use chimera_core::flow::policy::{Because, LevelDecision};
use chimera_core::flow::risk::Score;
use chimera_core::tool::{CallClass, Spec};
use serde_json::{Value, json};

/// The shipped actors and their defaults.
const ACTORS: [(&str, Option<Level>); 5] = [
    ("anonymous", Some(Level::Ask)),
    ("user_1", Some(Level::Draft)),
    ("n8n_workflow_1", Some(Level::ExecuteNotify)),
    ("admin", Some(Level::ExecuteSilent)),
    ("service_x", None),
];

/// Decides about a plan; `change` modifies an ordinary request.
fn decide(
    (actor, default): (&str, Option<Level>),
    plan: &Plan,
    change: impl FnOnce(&mut AutonomyFacts<'_>),
) -> Result<LevelDecision, OverrideForbidden> {
    let score: Score = scored(plan);
    let specs: Vec<Spec> = plan.steps.iter().filter_map(|step| tool(&step.tool)).collect();
    let tools: Vec<&Spec> = specs.iter().collect();
    let mut facts = AutonomyFacts {
        actor,
        default,
        may_override: false,
        requested: None,
        tools: &tools,
        deletes: plan
            .steps
            .iter()
            .any(|step| tool(&step.tool).is_some_and(|it| it.call_class(&step.input) == CallClass::Delete)),
        messages_outsiders: false,
        steps: plan.steps.len(),
        score: &score,
        cautious: false,
        first_time: false,
    };
    change(&mut facts);
    determine_autonomy_level(&facts)
}

/// The level of an ordinary request.
fn level(actor: (&str, Option<Level>), plan: &Plan) -> Level {
    decide(actor, plan, |_| {}).unwrap().level
}

fn forced(requested: Level) -> impl Fn(&mut AutonomyFacts<'_>) {
    move |facts| (facts.requested, facts.may_override) = (Some(requested), true)
}

fn fetch() -> Plan {
    plan([("github.issues", json!({"repo": "acme/site"}))])
}

fn steps(count: usize) -> Plan {
    let mut whole = note(json!({"text": "part"}));
    whole.steps = vec![whole.steps[0].clone(); count];
    whole
}

/// CORE-013
#[test]
fn there_are_four_levels_and_each_is_its_own_word() {
    let words = ["L0_Ask", "L1_Draft", "L2_ExecuteNotify", "L3_ExecuteSilent"];
    assert_eq!(Level::ALL.iter().map(|level| level.as_str()).collect::<Vec<_>>(), words);
    for (level, word) in Level::ALL.iter().zip(words) {
        assert_eq!((json!(level), Level::parse(word)), (json!(word), Some(*level)));
        assert_eq!(serde_json::from_value::<Level>(json!(word)).unwrap(), *level);
    }
    assert_eq!(Level::parse("L4"), None);
}

/// CORE-014
#[test]
fn the_lower_two_levels_need_a_person() {
    assert_eq!(Level::ALL.iter().map(|level| level.needs_approval()).collect::<Vec<_>>(), [true, true, false, false]);
}

/// CORE-015
#[test]
fn a_high_risk_tool_is_never_used_without_a_person() {
    let delete = json!({"method": "DELETE", "url": "https://example.com/users/7"});
    let risky = ["payment.send", "email_send", "sms.send", "local.high"].map(|name| (name, json!({})));
    for (name, input) in risky.into_iter().chain([("http.request", delete)]) {
        let plan = plan([("local.note", json!({})), (name, input)]);
        for actor in ACTORS {
            assert!(level(actor, &plan).needs_approval(), "{actor:?} {name}");
            for asked in Level::ALL {
                let decided = decide(actor, &plan, forced(*asked)).unwrap();
                assert_eq!(decided.level, (*asked).min(Level::Draft), "{actor:?} {name}");
            }
        }
    }
}

/// CORE-016, CORE-039
#[test]
fn a_routine_plan_gets_the_actors_default() {
    for plan in [fetch(), plan([("local.summarize", json!({"text": "A story."}))])] {
        for (actor, default) in ACTORS.into_iter().filter_map(|(actor, default)| Some((actor, default?))) {
            let expected = LevelDecision { level: default, reason: Because::ActorDefault };
            assert_eq!(decide((actor, Some(default)), &plan, |_| {}), Ok(expected), "{actor}");
        }
    }
}

/// CORE-034
#[test]
fn people_and_the_anonymous_never_act_in_silence() {
    for actor in ["user_1", "user_root", "anonymous"] {
        let silent = Some(Level::ExecuteSilent);
        let capped = LevelDecision { level: Level::ExecuteNotify, reason: Because::UntrustedActor };
        assert_eq!(decide((actor, silent), &fetch(), |_| {}), Ok(capped));
        assert_eq!(decide((actor, silent), &fetch(), forced(Level::ExecuteSilent)), Ok(capped));
        let refused = decide((actor, silent), &fetch(), |facts| facts.requested = silent);
        assert_eq!(refused, Err(OverrideForbidden { asked: Level::ExecuteSilent, granted: Level::ExecuteNotify }));
    }
    let trusted = decide(("superuser_1", Some(Level::Ask)), &fetch(), forced(Level::ExecuteSilent)).unwrap();
    assert_eq!(trusted.level, Level::ExecuteSilent);
}

/// CORE-036
#[test]
fn actor_plan_and_tools_decide_together() {
    let admin = ACTORS[3];
    assert_eq!(level(admin, &fetch()), Level::ExecuteSilent);
    assert_eq!(level(ACTORS[1], &fetch()), Level::Draft);
    assert_eq!(level(admin, &steps(11)), Level::Draft);
    assert_eq!(level(admin, &plan([("ledger.book", json!({}))])), Level::Draft);
}

/// CORE-037
#[test]
fn a_forced_level_wins_for_those_who_may_and_is_refused_to_others() {
    let actor = ACTORS[2];
    for plan in [fetch(), plan([("ledger.book", json!({}))])] {
        for asked in Level::ALL {
            let expected = LevelDecision { level: *asked, reason: Because::Override };
            assert_eq!(decide(actor, &plan, forced(*asked)), Ok(expected));
        }
    }
    let asking = |asked| decide(actor, &fetch(), |facts| facts.requested = Some(asked));
    let refused = OverrideForbidden { asked: Level::ExecuteSilent, granted: Level::ExecuteNotify };
    assert_eq!(asking(Level::ExecuteSilent), Err(refused));
    assert_eq!(
        refused.to_string(),
        "L3_ExecuteSilent needs the scope autonomy.override; without it this plan gets L2_ExecuteNotify"
    );
}

/// CORE-037
#[test]
fn anybody_may_ask_for_more_supervision() {
    let asking = |asked| decide(ACTORS[2], &fetch(), |facts| facts.requested = Some(asked));
    for asked in [Level::Ask, Level::Draft] {
        assert_eq!(asking(asked), Ok(LevelDecision { level: asked, reason: Because::AskedForLess }));
    }
    let same = LevelDecision { level: Level::ExecuteNotify, reason: Because::ActorDefault };
    assert_eq!(asking(Level::ExecuteNotify), Ok(same));
}

/// CORE-038
#[test]
fn a_tool_that_demands_approval_is_drafted_or_asked_for() {
    let plan = plan([("local.note", json!({})), ("ledger.book", json!({}))]);
    for actor in ACTORS {
        let expected = if actor.1 == Some(Level::Ask) { Level::Ask } else { Level::Draft };
        let reason = Because::ToolRequiresApproval;
        assert_eq!(decide(actor, &plan, |_| {}), Ok(LevelDecision { level: expected, reason }), "{actor:?}");
    }
}

/// CORE-040, CORE-041, CORE-042
#[test]
fn without_a_default_the_risk_decides() {
    let risky = |input: Value| plan([("http.request", input)]);
    let actor = ("service_x", None);
    let cases = [
        (note(json!({"text": "hello"})), Level::ExecuteNotify),
        (fetch(), Level::ExecuteNotify),
        (note(json!({"text": "DROP TABLE users"})), Level::Draft),
        (plan([("store.put", json!({})), ("store.put", json!({})), ("store.put", json!({}))]), Level::Draft),
        (risky(json!({"method": "DELETE", "url": "https://example.com/users/7"})), Level::Ask),
    ];
    for (plan, expected) in cases {
        assert_eq!(
            decide(actor, &plan, |_| {}),
            Ok(LevelDecision { level: expected, reason: Because::RiskScore }),
            "{plan:?}"
        );
    }
}

/// CORE-046
#[test]
fn more_than_ten_steps_are_drafted_whoever_asks() {
    for actor in [ACTORS[2], ACTORS[3]] {
        assert_eq!(Some(level(actor, &steps(10))), actor.1);
        let drafted = LevelDecision { level: Level::Draft, reason: Because::ManySteps };
        assert_eq!(decide(actor, &steps(11), |_| {}), Ok(drafted));
        assert_eq!(decide(actor, &steps(11), forced(Level::ExecuteSilent)), Ok(drafted));
    }
    assert_eq!(level(ACTORS[0], &steps(11)), Level::Ask);
    assert_eq!((level(ACTORS[4], &steps(10)), level(ACTORS[4], &steps(11))), (Level::ExecuteNotify, Level::Draft));
}

#[test]
fn caution_about_first_times_is_a_switch() {
    let with = |cautious, first_time| {
        let change = move |facts: &mut AutonomyFacts<'_>| (facts.cautious, facts.first_time) = (cautious, first_time);
        decide(ACTORS[3], &fetch(), change).unwrap()
    };
    assert_eq!(with(true, true), LevelDecision { level: Level::Draft, reason: Because::FirstTime });
    for (cautious, first_time) in [(false, false), (false, true), (true, false)] {
        assert_eq!(with(cautious, first_time).level, Level::ExecuteSilent);
    }
}

/// CORE-021, CORE-025, CORE-029, CORE-033
#[test]
fn every_use_case_gets_its_level() {
    let of = |id: &str| ["CORE-021", "CORE-025", "CORE-029", "CORE-033"].iter().position(|known| *known == id).unwrap();
    let named = |case: &Value, member: &str| case[member].as_str().map(|word| Level::parse(word).unwrap());
    let is = |case: &Value, member: &str| case[member].as_bool().unwrap_or(false);
    let mut seen = [0; 4];
    for case in cases("levels.json") {
        let plan: Plan = serde_json::from_value(case["plan"].clone()).unwrap();
        let decided = decide((case["actor"].as_str().unwrap(), named(&case, "default")), &plan, |facts| {
            (facts.requested, facts.may_override) = (named(&case, "requested"), is(&case, "may_override"));
            (facts.cautious, facts.first_time) = (is(&case, "cautious"), is(&case, "first_time"));
        });
        let expected = Level::ALL[of(case["requirement"].as_str().unwrap())];
        let reason = Because::parse(case["because"].as_str().unwrap()).unwrap();
        assert_eq!(decided, Ok(LevelDecision { level: expected, reason }), "{case} {:?}", scored(&plan));
        assert_eq!(json!(expected), case["level"]);
        seen[of(case["requirement"].as_str().unwrap())] += 1;
    }
    assert!(seen.iter().all(|count| *count >= 4), "{seen:?}");
}

/// CORE-036: the high-risk operations of the specification need approval, for every actor and level.
#[test]
fn deletions_and_messages_to_outsiders_ask_a_person_and_no_override_lifts_that() {
    for (actor, default) in ACTORS {
        for (deletes, outsiders, reason) in
            [(true, false, Because::Deletes), (false, true, Because::MessageToOutsiders)]
        {
            let told = |facts: &mut AutonomyFacts<'_>| (facts.deletes, facts.messages_outsiders) = (deletes, outsiders);
            let plain = decide((actor, default), &fetch(), told).unwrap();
            assert!(plain.level <= Level::Draft, "{actor}: {plain:?}");
            let forced = decide((actor, default), &fetch(), |facts| {
                forced(Level::ExecuteSilent)(facts);
                told(facts);
            });
            assert_eq!(forced.unwrap(), LevelDecision { level: Level::Draft, reason }, "{actor}");
        }
    }
}
