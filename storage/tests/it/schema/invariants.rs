//! What constraints refuse on both stores: bad values, unknown parents, mixed tenants.

use super::store::{Refusal, Store, both, guard};

/// Two tenants with a campaign, a goal and a task each, and one result of tenant 1 with a verdict.
const SWARM: &[&str] = &[
    "INSERT INTO tenants (id, slug, name) VALUES ('t1', 'acme', 'Acme')",
    "INSERT INTO tenants (id, slug, name) VALUES ('t2', 'other', 'Other')",
    "INSERT INTO swarm_campaigns (tenant_id, id, name) VALUES ('t1', 'c1', 'one')",
    "INSERT INTO swarm_campaigns (tenant_id, id, name) VALUES ('t2', 'c2', 'two')",
    "INSERT INTO swarm_goals (tenant_id, id, campaign_id, description) VALUES ('t1', 'g1', 'c1', 'goal')",
    "INSERT INTO swarm_goals (tenant_id, id, campaign_id, description) VALUES ('t2', 'g2', 'c2', 'goal')",
    "INSERT INTO swarm_tasks (tenant_id, id, campaign_id, goal_id, task_type, spec_json, idempotency_key)
        VALUES ('t1', 'k1', 'c1', 'g1', 'commerce', '{\"a\":1}', 'key1')",
    "INSERT INTO swarm_tasks (tenant_id, id, campaign_id, goal_id, task_type, spec_json, idempotency_key)
        VALUES ('t1', 'k2', 'c1', 'g1', 'other', '{}', 'key2')",
    "INSERT INTO swarm_tasks (tenant_id, id, campaign_id, goal_id, task_type, spec_json, idempotency_key)
        VALUES ('t2', 'k3', 'c2', 'g2', 'other', '{}', 'key1')",
    "INSERT INTO swarm_worker_runs (tenant_id, id, task_id, attempt_number) VALUES ('t1', 'r1', 'k1', 1)",
    "INSERT INTO swarm_worker_results (tenant_id, id, task_id, worker_run_id, status, confidence_score, risk_tags_json,
        outputs_json) VALUES ('t1', 's1', 'k1', 'r1', 'complete', '0.9', '[]', '{}')",
    "INSERT INTO swarm_judge_decisions (tenant_id, id, task_id, worker_result_id, decision, state_version_used,
        reason_summary, policy_checks_json, human_review_required)
        VALUES ('t1', 'd1', 'k1', 's1', 'escalate', 1, 'why', '[]', {true})",
    "INSERT INTO swarm_wallets (tenant_id, id, agent_or_campaign_id, kind, provider_ref)
        VALUES ('t1', 'w1', 'c1', 'commerce', 'p')",
];

async fn swarms() -> [Store; 2] {
    let stores = both().await;
    for store in &stores {
        store.given(SWARM).await;
    }
    stores
}

async fn assert_refused(store: &Store, cases: &[(&str, Refusal)]) {
    for (sql, refusal) in cases {
        assert_eq!(store.refusal(sql).await, *refusal, "{sql}");
    }
}

const OBJECTIVE: &str = "INSERT INTO objectives (objective_id, objective_type, objective_data, spec_version)
    VALUES ({u1}, 'content_creation', '{}', '1.0.0')";
const PLAN: &str =
    "INSERT INTO plans (plan_id, objective_id, plan_data, spec_version) VALUES ({u2}, {u1}, '{}', '1.0.0')";

fn task(id: &str, plan: &str, priority: i32) -> String {
    format!(
        "INSERT INTO tasks (task_id, plan_id, task_type, required_skill, input_parameters, success_criteria, priority)
         VALUES ({id}, {plan}, 'trend_fetch', 'skill', '{{}}', '{{}}', {priority})"
    )
}

fn invocation(id: &str, task: &str, duration: i32, key: &str) -> String {
    format!(
        "INSERT INTO skill_invocations (invocation_id, task_id, skill_id, agent_id, input_parameters, status,
         execution_duration_ms, idempotency_key, completed_at)
         VALUES ({id}, {task}, 'skill', {{u9}}, '{{}}', 'success', {duration}, {key}, {{now}})"
    )
}

/// CONTENT-059, CONTENT-063, CONTENT-065, CONTENT-068
#[tokio::test]
async fn plans_need_an_objective_and_tasks_a_plan_and_a_priority_from_1_to_10() {
    for store in both().await {
        assert_eq!(store.refusal(PLAN).await, Refusal::ForeignKey);
        store.given(&[OBJECTIVE, PLAN, &PLAN.replace("{u2}", "{u3}")]).await;
        assert_eq!(store.refusal(&task("{u4}", "{u8}", 5)).await, Refusal::ForeignKey);
        assert_eq!(store.refusal(&task("{u4}", "{u2}", 0)).await, Refusal::Check);
        assert_eq!(store.refusal(&task("{u4}", "{u2}", 11)).await, Refusal::Check);
        store.given(&[&task("{u4}", "{u2}", 1), &task("{u5}", "{u2}", 10)]).await;
        let default = "INSERT INTO tasks (task_id, plan_id, task_type, required_skill, input_parameters,
            success_criteria) VALUES ({u6}, {u2}, 'trend_fetch', 'skill', '{}', '{}')";
        store.given(&[default]).await;
        assert_eq!(store.number("SELECT CAST(priority AS BIGINT) FROM tasks WHERE task_id = {u6}").await, 5);
    }
}

/// CONTENT-070, CONTENT-074, CONTENT-102
#[tokio::test]
async fn a_skill_invocation_has_a_known_task_or_none_and_a_key_of_its_own() {
    for store in both().await {
        store.given(&[OBJECTIVE, PLAN, &task("{u3}", "{u2}", 5)]).await;
        store.given(&[&invocation("{u4}", "{u3}", 0, "'key'"), &invocation("{u5}", "NULL", 0, "NULL")]).await;
        store.given(&[&invocation("{u6}", "NULL", 0, "NULL")]).await;
        assert_eq!(store.refusal(&invocation("{u7}", "{u8}", 0, "NULL")).await, Refusal::ForeignKey);
        assert_eq!(store.refusal(&invocation("{u7}", "NULL", 0, "'key'")).await, Refusal::Unique);
        assert_eq!(store.refusal(&invocation("{u7}", "NULL", -1, "NULL")).await, Refusal::Check);
        let long = format!("'{}'", "k".repeat(256));
        assert_eq!(store.refusal(&invocation("{u7}", "NULL", 0, &long)).await, Refusal::Check);
    }
}

/// CONTENT-076, CONTENT-090
#[tokio::test]
async fn relevance_stays_within_one_and_no_duration_is_negative() {
    let trend = |score: &str| {
        format!(
            "INSERT INTO trends (trend_id, title, source, relevance_score, observed_at)
             VALUES ({{u1}}, 'a title', 'manual', '{score}', {{now}})"
        )
    };
    for store in both().await {
        assert_eq!(store.refusal(&trend("1.01")).await, Refusal::Check);
        assert_eq!(store.refusal(&trend("-0.01")).await, Refusal::Check);
        store.given(&[&trend("1.00")]).await;
        let execution = "INSERT INTO agent_executions (execution_id, agent_id, agent_type, execution_type, status,
            execution_duration_ms) VALUES ({u1}, {u2}, 'worker', 'task_execution', 'failed', -1)";
        assert_eq!(store.refusal(execution).await, Refusal::Check);
    }
}

/// RUNTIME-024, RUNTIME-033, RUNTIME-039
#[tokio::test]
async fn agents_jobs_and_outputs_take_only_their_listed_words() {
    let agent = |level: &str| {
        format!(
            "INSERT INTO agents (id, name, agent_level, llm_provider, llm_model, max_tokens, allowed_skills)
             VALUES ({{u1}}, 'a', '{level}', 'local', 'm', 10, {{none}})"
        )
    };
    let job = |id: &str, status: &str| {
        format!(
            "INSERT INTO agent_jobs (id, command_id, plan_step_id, agent_id, identity_id, context_id, status, token_limit)
             VALUES ({id}, {{u2}}, {{u3}}, {{u1}}, {{u4}}, {{u5}}, '{status}', 10)"
        )
    };
    let output = |id: &str, kind: &str| {
        format!(
            "INSERT INTO agent_outputs (id, job_id, output_type, reference) VALUES ({id}, {{u6}}, '{kind}', '{{}}')"
        )
    };
    for store in both().await {
        assert_eq!(store.refusal(&agent("L3")).await, Refusal::Check);
        assert_eq!(store.refusal(&job("{u6}", "created")).await, Refusal::ForeignKey);
        store.given(&[&agent("L2"), &job("{u6}", "created")]).await;
        assert_eq!(store.refusal(&job("{u7}", "done")).await, Refusal::Check);
        assert_eq!(store.refusal(&output("{u8}", "blob")).await, Refusal::Check);
        store.given(&[&output("{u8}", "file"), &output("{u9}", "log")]).await;
    }
}

/// RUNTIME-038
#[tokio::test]
async fn deleting_a_job_deletes_its_outputs() {
    for store in both().await {
        let given = [
            "INSERT INTO agents (id, name, agent_level, llm_provider, llm_model, max_tokens, allowed_skills)
                VALUES ({u1}, 'a', 'L0', 'local', 'm', 10, {none})",
            "INSERT INTO agent_jobs (id, command_id, plan_step_id, agent_id, identity_id, context_id, token_limit)
                VALUES ({u6}, {u2}, {u3}, {u1}, {u4}, {u5}, 10)",
            "INSERT INTO agent_outputs (id, job_id, output_type, reference) VALUES ({u8}, {u6}, 'file', '{}')",
            "INSERT INTO job_details (job_id, tenant_id) VALUES ({u6}, 't1')",
            "DELETE FROM agent_jobs WHERE id = {u6}",
        ];
        store.given(&given).await;
        assert_eq!(store.number("SELECT COUNT(*) FROM agent_outputs").await, 0);
    }
}

/// SWARM-072, SWARM-083
#[tokio::test]
async fn a_campaign_has_one_tenant_and_takes_no_goal_or_task_of_another() {
    for store in swarms().await {
        let cases = [
            "INSERT INTO swarm_campaigns (tenant_id, id, name) VALUES ('nobody', 'c9', 'x')",
            "INSERT INTO swarm_goals (tenant_id, id, campaign_id, description) VALUES ('t2', 'g9', 'c1', 'x')",
            "INSERT INTO swarm_goals (tenant_id, id, campaign_id, description) VALUES ('t1', 'g9', 'none', 'x')",
            "INSERT INTO swarm_tasks (tenant_id, id, campaign_id, goal_id, task_type, spec_json, idempotency_key)
                VALUES ('t2', 'k9', 'c1', 'g1', 'other', '{}', 'key9')",
            "INSERT INTO swarm_tasks (tenant_id, id, campaign_id, goal_id, task_type, spec_json, idempotency_key)
                VALUES ('t1', 'k9', 'c1', 'g2', 'other', '{}', 'key9')",
            "INSERT INTO swarm_wallets (tenant_id, id, agent_or_campaign_id, kind, provider_ref)
                VALUES ('nobody', 'w9', 'c1', 'internal', 'p')",
            "INSERT INTO swarm_transactions (tenant_id, id, wallet_id, direction, amount, currency, idempotency_key)
                VALUES ('t2', 'x9', 'w1', 'debit', '1', 'EUR', 'pay9')",
        ];
        assert_refused(&store, &cases.map(|sql| (sql, Refusal::ForeignKey))).await;
        let mut moved = "UPDATE swarm_campaigns SET tenant_id = 't2' WHERE id = 'c1'";
        assert_eq!(store.refusal(moved).await, Refusal::ForeignKey);
        moved = "UPDATE swarm_goals SET tenant_id = 't2' WHERE id = 'g1'";
        assert_eq!(store.refusal(moved).await, Refusal::ForeignKey);
    }
}

/// SWARM-086
#[tokio::test]
async fn the_specification_of_a_task_never_changes_and_the_task_stays() {
    for store in swarms().await {
        store.given(&["UPDATE swarm_tasks SET status = 'in_progress', state_version = 2 WHERE id = 'k1'"]).await;
        store.given(&["UPDATE swarm_tasks SET spec_json = '{\"a\":1}' WHERE id = 'k1'"]).await;
        let cases = [
            "UPDATE swarm_tasks SET spec_json = '{\"a\":2}' WHERE id = 'k1'",
            "UPDATE swarm_tasks SET id = 'k9' WHERE id = 'k2'",
            "UPDATE swarm_tasks SET idempotency_key = 'key9' WHERE id = 'k1'",
            "DELETE FROM swarm_tasks WHERE id = 'k2'",
        ];
        assert_refused(&store, &cases.map(|sql| (sql, guard("immutable: swarm_tasks")))).await;
        if let Store::Sqlite(_) = store {
            let columns = "(tenant_id, id, campaign_id, goal_id, task_type, spec_json, idempotency_key)";
            for row in
                ["('t1', 'k1', 'c1', 'g1', 'other', '{}', 'new')", "('t1', 'new', 'c1', 'g1', 'other', '{}', 'key1')"]
            {
                let replace = format!("REPLACE INTO swarm_tasks {columns} VALUES {row}");
                assert_eq!(store.refusal(&replace).await, guard("immutable: swarm_tasks (key exists)"));
            }
        }
    }
}

/// SWARM-073, SWARM-090
#[tokio::test]
async fn a_task_depends_on_another_known_task_once_and_never_on_itself() {
    let depends = |id: &str, tenant: &str, task: &str, on: &str| {
        format!(
            "INSERT INTO swarm_task_dependencies (tenant_id, id, task_id, depends_on_task_id)
             VALUES ('{tenant}', '{id}', '{task}', '{on}')"
        )
    };
    for store in swarms().await {
        store.given(&[&depends("p1", "t1", "k2", "k1")]).await;
        assert_eq!(store.refusal(&depends("p2", "t1", "k1", "k1")).await, Refusal::Check);
        assert_eq!(store.refusal(&depends("p2", "t1", "k2", "k1")).await, Refusal::Unique);
        assert_eq!(store.refusal(&depends("p2", "t1", "k1", "none")).await, Refusal::ForeignKey);
        assert_eq!(store.refusal(&depends("p2", "t1", "k1", "k3")).await, Refusal::ForeignKey);
    }
}

/// SWARM-074
#[tokio::test]
async fn a_worker_run_has_a_task_and_gives_one_result() {
    for store in swarms().await {
        let result =
            "INSERT INTO swarm_worker_results (tenant_id, id, task_id, worker_run_id, status, confidence_score,
            risk_tags_json, outputs_json) VALUES ('t1', 's2', 'k1', 'r1', 'failed', '0.1', '[]', '{}')";
        let cases = [
            (result, Refusal::Unique),
            (
                "INSERT INTO swarm_worker_runs (tenant_id, id, task_id, attempt_number) VALUES ('t1', 'r9', 'none', 1)",
                Refusal::ForeignKey,
            ),
            (
                "INSERT INTO swarm_worker_runs (tenant_id, id, task_id, attempt_number) VALUES ('t1', 'r9', 'k1', 1)",
                Refusal::Unique,
            ),
        ];
        assert_refused(&store, &cases).await;
    }
}

fn decision(id: &str, round: &str, supersedes: &str, verdict: &str) -> String {
    format!(
        "INSERT INTO swarm_judge_decisions (tenant_id, id, task_id, worker_result_id, round, supersedes_round, decision,
         state_version_used, reason_summary, policy_checks_json, human_review_required)
         VALUES ('t1', '{id}', 'k1', 's1', {round}, {supersedes}, '{verdict}', 2, 'why', '[]', {{false}})"
    )
}

/// SWARM-075, SWARM-095, SWARM-113
#[tokio::test]
async fn exactly_one_decision_on_a_result_is_in_force_and_none_is_ever_changed() {
    for store in swarms().await {
        let in_force =
            "SELECT COUNT(*) FROM swarm_decisions_in_force WHERE tenant_id = 't1' AND worker_result_id = 's1'";
        assert_eq!(store.number(in_force).await, 1);
        store.taken(&decision("d2", "1", "NULL", "approve")).await;
        assert_eq!(store.refusal(&decision("d2", "2", "NULL", "approve")).await, Refusal::Check);
        assert_eq!(store.refusal(&decision("d2", "3", "2", "approve")).await, Refusal::ForeignKey);
        assert_eq!(store.refusal(&decision("d2", "2", "1", "maybe")).await, Refusal::Check);
        store.given(&[&decision("d2", "2", "1", "approve")]).await;
        store.taken(&decision("d3", "2", "1", "reject")).await;
        assert_eq!(store.number(in_force).await, 1);
        let latest = "SELECT CAST(round AS BIGINT) FROM swarm_decisions_in_force";
        assert_eq!(store.number(latest).await, 2);
        let message = guard("append_only: swarm_judge_decisions");
        assert_eq!(store.refusal("UPDATE swarm_judge_decisions SET decision = 'reject'").await, message);
        assert_eq!(store.refusal("DELETE FROM swarm_judge_decisions").await, message);
    }
}

fn payment(id: &str, decision: &str, status: &str, key: &str) -> String {
    format!(
        "INSERT INTO swarm_transactions (tenant_id, id, wallet_id, task_id, judge_decision_id, direction, amount,
         currency, status, idempotency_key)
         VALUES ('t1', '{id}', 'w1', 'k1', {decision}, 'debit', '12.50', 'EUR', '{status}', '{key}')"
    )
}

/// SWARM-077, SWARM-078, SWARM-099, SWARM-103, SWARM-104
#[tokio::test]
async fn a_transaction_needs_a_wallet_a_key_and_a_decision_that_no_other_has() {
    for store in swarms().await {
        assert_eq!(store.refusal(&payment("x1", "NULL", "executed", "pay1")).await, Refusal::Check);
        assert_eq!(store.refusal(&payment("x1", "'none'", "pending", "pay1")).await, Refusal::ForeignKey);
        assert_eq!(store.refusal(&payment("x1", "'d1'", "done", "pay1")).await, Refusal::Check);
        store.given(&[&payment("x1", "'d1'", "executed", "pay1"), &payment("x2", "NULL", "pending", "pay2")]).await;
        assert_eq!(store.refusal(&payment("x3", "'d1'", "pending", "pay3")).await, Refusal::Unique);
        assert_eq!(store.refusal(&payment("x3", "NULL", "pending", "pay2")).await, Refusal::Unique);
        let cases = [
            (payment("x3", "NULL", "pending", "pay3").replace("'debit'", "'gift'"), Refusal::Check),
            (payment("x3", "NULL", "pending", "pay3").replace("'12.50'", "'-1'"), Refusal::Check),
            (payment("x3", "NULL", "pending", "pay3").replace("'pay3'", "NULL"), Refusal::NotNull),
            (payment("x3", "NULL", "pending", "pay3").replace("'w1'", "'none'"), Refusal::ForeignKey),
        ];
        for (sql, refusal) in cases {
            assert_eq!(store.refusal(&sql).await, refusal, "{sql}");
        }
    }
}

/// SWARM-096, SWARM-097, SWARM-104
#[tokio::test]
async fn a_publication_has_a_key_of_its_own_and_none_is_published_without_a_decision() {
    let event = |id: &str, decision: &str, status: &str, key: &str| {
        format!(
            "INSERT INTO swarm_publish_events (tenant_id, id, campaign_id, task_id, judge_decision_id, channel, status,
             idempotency_key) VALUES ('t1', '{id}', 'c1', 'k1', {decision}, 'social', '{status}', '{key}')"
        )
    };
    let asset = |kind: &str| {
        format!(
            "INSERT INTO swarm_media_assets (tenant_id, id, campaign_id, kind, storage_uri)
             VALUES ('t1', 'm1', 'c1', '{kind}', 'cas://x')"
        )
    };
    for store in swarms().await {
        assert_eq!(store.refusal(&event("e1", "NULL", "published", "pub1")).await, Refusal::Check);
        assert_eq!(store.refusal(&event("e1", "'d1'", "sent", "pub1")).await, Refusal::Check);
        store.given(&[&event("e1", "'d1'", "published", "pub1")]).await;
        assert_eq!(store.refusal(&event("e2", "'d1'", "scheduled", "pub1")).await, Refusal::Unique);
        assert_eq!(store.refusal(&asset("text")).await, Refusal::Check);
        store.given(&[&asset("audio")]).await;
    }
}

/// SWARM-011, SWARM-013, SWARM-098, SWARM-100
#[tokio::test]
async fn closed_lists_of_words_are_checked() {
    let envelope = "INSERT INTO swarm_envelopes (tenant_id, id, created_at, role, type, status, payload)
        VALUES ('t1', 'v1', {now}, 'planner', 'planner.task', 'pending', '{}')";
    let entry = "INSERT INTO audit_log_entries (lane, seq, id, tenant_id, subject_type, subject_id, event_type,
        actor_type, timestamp, data_json, salt, content_digest, prev_hash, hash)
        VALUES (1, 1, 'e1', 't1', 'task', 's1', 'x', 'system', {now}, '{}', {b32}, {b32}, {b32}, {b32})";
    let wallet = "INSERT INTO swarm_wallets (tenant_id, id, agent_or_campaign_id, kind, provider_ref)
        VALUES ('t1', 'w2', 'c1', 'internal', 'p')";
    for store in swarms().await {
        let cases = [
            envelope.replace("'planner',", "'boss',"),
            envelope.replace("'pending'", "'completed'"),
            entry.replace("'task'", "'thing'"),
            entry.replace("'system'", "'robot'"),
            wallet.replace("'internal'", "'cash'"),
        ];
        for sql in cases {
            assert_eq!(store.refusal(&sql).await, Refusal::Check, "{sql}");
        }
        store.given(&[envelope, entry, wallet]).await;
    }
}

/// SWARM-108
#[tokio::test]
async fn shared_state_has_a_version_and_an_old_one_changes_nothing() {
    for store in swarms().await {
        store
            .given(&[
                "INSERT INTO swarm_budgets (tenant_id, id, currency, limit_amount) VALUES ('t1', 'b1', 'EUR', '9')",
            ])
            .await;
        for table in ["swarm_campaigns", "swarm_tasks", "swarm_budgets"] {
            let update = format!(
                "UPDATE {table} SET state_version = state_version + 1 WHERE tenant_id = 't1'
                AND id IN ('c1', 'k1', 'b1') AND state_version = 1"
            );
            assert_eq!(store.run(&update).await, Ok(1), "{table}");
            assert_eq!(store.run(&update).await, Ok(0), "{table}");
        }
    }
}
