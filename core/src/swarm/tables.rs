//! The tables of the swarm room: plans and tasks, goals, results, decisions, publications, payments.
//!
//! Tables without the prefix are fixed by their specification and have no tenant column: read the `scoped_…` views.
//! In tables with the prefix every key begins with the tenant.

use crate::record::{Decimal, Json, Table, scoped_table, table};
use crate::time::Timestamp;
use uuid::Uuid;

scoped_table! {
    /// Objectives that planners decompose.
    OBJECTIVES = objectives -> ObjectiveRow,
    SCOPED_OBJECTIVES = scoped_objectives -> ScopedObjectiveRow {
        objective_id: Uuid,
        objective_type: String [chars(50)],
        objective_data: Json,
        status: String [default, chars(20)],
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        completed_at: Option<Timestamp>,
        spec_version: String [chars(20)],
    }
    key: [objective_id],
    rank: 500,
}

scoped_table! {
    /// Plans as created.
    PLANS = plans -> PlanRow,
    SCOPED_PLANS = scoped_plans -> ScopedPlanRow {
        plan_id: Uuid,
        objective_id: Uuid,
        plan_data: Json,
        status: String [default, chars(20)],
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        completed_at: Option<Timestamp>,
        spec_version: String [chars(20)],
    }
    key: [plan_id],
    rank: 501,
}

scoped_table! {
    TASKS = tasks -> TaskRow,
    SCOPED_TASKS = scoped_tasks -> ScopedTaskRow {
        task_id: Uuid,
        plan_id: Uuid,
        task_type: String [chars(50)],
        required_skill: String [chars(100)],
        input_parameters: Json,
        success_criteria: Json,
        depends_on: Option<Vec<Uuid>>,
        status: String [default, chars(20)],
        assigned_agent_id: Option<Uuid>,
        priority: i32 [default],
        created_at: Timestamp [default],
        started_at: Option<Timestamp>,
        completed_at: Option<Timestamp>,
        output_data: Option<Json>,
        error_data: Option<Json>,
    }
    key: [task_id],
    rank: 502,
}

scoped_table! {
    /// Skill invocations.
    SKILL_INVOCATIONS = skill_invocations -> SkillInvocationRow,
    SCOPED_SKILL_INVOCATIONS = scoped_skill_invocations -> ScopedSkillInvocationRow {
        invocation_id: Uuid,
        task_id: Option<Uuid>,
        skill_id: String [chars(100)],
        agent_id: Uuid,
        input_parameters: Json,
        output_data: Option<Json>,
        status: String [chars(20)],
        error_data: Option<Json>,
        execution_duration_ms: i32 [default],
        resource_usage: Option<Json>,
        idempotency_key: Option<String> [chars(255)],
        invoked_at: Timestamp [default],
        completed_at: Timestamp,
    }
    key: [invocation_id],
    unique: [idempotency_key],
    rank: 503,
}

scoped_table! {
    /// Observed trends.
    TRENDS = trends -> TrendRow,
    SCOPED_TRENDS = scoped_trends -> ScopedTrendRow {
        trend_id: Uuid,
        title: String [chars(500)],
        description: Option<String>,
        source: String [chars(50)],
        source_agent_id: Option<Uuid>,
        relevance_score: Decimal,
        observed_at: Timestamp,
        metadata: Option<Json>,
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
    }
    key: [trend_id],
    rank: 504,
}

table! {
    SWARM_CAMPAIGNS = swarm_campaigns -> SwarmCampaignRow {
        tenant_id: String,
        id: String,
        name: String,
        status: String [default],
        persona_id: Option<String>,
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
    }
    key: [tenant_id, id],
    tenant: tenant_id,
    rank: 505,
}

table! {
    SWARM_GOALS = swarm_goals -> SwarmGoalRow {
        tenant_id: String,
        id: String,
        campaign_id: String,
        description: String,
        status: String [default],
        objective_id: Option<Uuid>,
        run_id: Option<Uuid>,
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
    }
    key: [tenant_id, id],
    unique: [tenant_id, campaign_id, id],
    tenant: tenant_id,
    rank: 506,
}

table! {
    /// Tasks with their immutable specification.
    SWARM_TASKS = swarm_tasks -> SwarmTaskRow {
        tenant_id: String,
        id: String,
        campaign_id: String,
        goal_id: String,
        task_type: String,
        priority: String [default],
        status: String [default],
        spec_json: Json [exact],
        idempotency_key: String,
        replaces_task_id: Option<String>,
        plan_task_id: Option<Uuid>,
        run_id: Option<Uuid>,
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
    }
    key: [tenant_id, id],
    unique: [plan_task_id],
    unique: [tenant_id, campaign_id, id],
    unique: [tenant_id, idempotency_key],
    tenant: tenant_id,
    rank: 507,
}

table! {
    /// Dependencies between tasks.
    SWARM_TASK_DEPENDENCIES = swarm_task_dependencies -> SwarmTaskDependencyRow {
        tenant_id: String,
        id: String,
        task_id: String,
        depends_on_task_id: String,
    }
    key: [tenant_id, id],
    unique: [tenant_id, task_id, depends_on_task_id],
    tenant: tenant_id,
    rank: 508,
}

table! {
    SWARM_ENVELOPES = swarm_envelopes -> SwarmEnvelopeRow {
        tenant_id: String,
        id: String,
        campaign_id: Option<String>,
        goal_id: Option<String>,
        task_id: Option<String>,
        correlation_id: Option<String>,
        created_at: Timestamp,
        role: String,
        r#type: String,
        status: String,
        confidence_score: Option<Decimal>,
        risk_tags: Vec<String> [default],
        idempotency_key: Option<String>,
        payload: Json,
        error: Option<Json>,
        received_at: Timestamp [default],
    }
    key: [tenant_id, id],
    tenant: tenant_id,
    rank: 509,
}

table! {
    SWARM_WORKER_RUNS = swarm_worker_runs -> SwarmWorkerRunRow {
        tenant_id: String,
        id: String,
        task_id: String,
        attempt_number: i32,
        status: String [default],
        envelope_id: Option<String>,
        job_id: Option<Uuid>,
        started_at: Timestamp [default],
        finished_at: Option<Timestamp>,
        state_version: i64 [default],
    }
    key: [tenant_id, id],
    unique: [tenant_id, task_id, attempt_number],
    unique: [tenant_id, task_id, id],
    tenant: tenant_id,
    rank: 510,
}

table! {
    /// Results of attempts.
    SWARM_WORKER_RESULTS = swarm_worker_results -> SwarmWorkerResultRow {
        tenant_id: String,
        id: String,
        task_id: String,
        worker_run_id: String,
        status: String,
        confidence_score: Decimal,
        risk_tags_json: Json,
        outputs_json: Json,
        error_json: Option<Json>,
        created_at: Timestamp [default],
    }
    key: [tenant_id, id],
    unique: [tenant_id, worker_run_id],
    unique: [tenant_id, task_id, id],
    tenant: tenant_id,
    rank: 511,
}

table! {
    /// Verdicts on results, append-only.
    SWARM_JUDGE_DECISIONS = swarm_judge_decisions -> SwarmJudgeDecisionRow {
        tenant_id: String,
        id: String,
        task_id: String,
        worker_result_id: String,
        round: i32 [default],
        supersedes_round: Option<i32>,
        decision: String,
        state_version_used: i64,
        reason_summary: String,
        policy_checks_json: Json,
        required_actions_json: Option<Json>,
        override_json: Option<Json>,
        human_review_required: bool,
        human_reviewer_id: Option<String>,
        envelope_id: Option<String>,
        decided_at: Timestamp [default],
    }
    key: [tenant_id, id],
    unique: [tenant_id, worker_result_id, round],
    unique: [tenant_id, task_id, id],
    tenant: tenant_id,
    rank: 512,
}

table! {
    /// The effective decision for each result.
    SWARM_DECISIONS_IN_FORCE = swarm_decisions_in_force -> SwarmDecisionInForceRow {
        tenant_id: String,
        id: String,
        task_id: String,
        worker_result_id: String,
        round: i32 [default],
        supersedes_round: Option<i32>,
        decision: String,
        state_version_used: i64,
        reason_summary: String,
        policy_checks_json: Json,
        required_actions_json: Option<Json>,
        override_json: Option<Json>,
        human_review_required: bool,
        human_reviewer_id: Option<String>,
        envelope_id: Option<String>,
        decided_at: Timestamp [default],
    }
    key: [tenant_id, id],
    tenant: tenant_id,
    rank: 950,
}

table! {
    SWARM_MEDIA_ASSETS = swarm_media_assets -> SwarmMediaAssetRow {
        tenant_id: String,
        id: String,
        campaign_id: String,
        task_id: Option<String>,
        kind: String,
        storage_uri: String,
        duration_seconds: Option<Decimal>,
        width: Option<i32>,
        height: Option<i32>,
        format: Option<String>,
        character_id: Option<String>,
        metadata_json: Option<Json>,
        created_at: Timestamp [default],
    }
    key: [tenant_id, id],
    tenant: tenant_id,
    rank: 513,
}

table! {
    SWARM_PUBLISH_EVENTS = swarm_publish_events -> SwarmPublishEventRow {
        tenant_id: String,
        id: String,
        campaign_id: String,
        task_id: String,
        media_asset_id: Option<String>,
        judge_decision_id: Option<String>,
        channel: String,
        external_post_id: Option<String>,
        published_at: Option<Timestamp>,
        status: String [default],
        disclosure_applied: bool [default],
        idempotency_key: String,
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
    }
    key: [tenant_id, id],
    unique: [tenant_id, idempotency_key],
    tenant: tenant_id,
    rank: 514,
}

table! {
    SWARM_WALLETS = swarm_wallets -> SwarmWalletRow {
        tenant_id: String,
        id: String,
        agent_or_campaign_id: String,
        kind: String,
        provider_ref: String,
        created_at: Timestamp [default],
    }
    key: [tenant_id, id],
    tenant: tenant_id,
    rank: 515,
}

table! {
    SWARM_TRANSACTIONS = swarm_transactions -> SwarmTransactionRow {
        tenant_id: String,
        id: String,
        wallet_id: String,
        task_id: Option<String>,
        judge_decision_id: Option<String>,
        direction: String,
        amount: Decimal,
        currency: String,
        chain_tx_hash: Option<String>,
        requested_at: Timestamp [default],
        executed_at: Option<Timestamp>,
        status: String [default],
        idempotency_key: String,
        updated_at: Timestamp [default],
        state_version: i64 [default],
    }
    key: [tenant_id, id],
    unique: [tenant_id, idempotency_key],
    unique: [tenant_id, judge_decision_id],
    tenant: tenant_id,
    rank: 516,
}

table! {
    /// Spending limits.
    SWARM_BUDGETS = swarm_budgets -> SwarmBudgetRow {
        tenant_id: String,
        id: String,
        campaign_id: Option<String>,
        wallet_id: Option<String>,
        currency: String,
        limit_amount: Decimal,
        reserved_amount: Decimal [default],
        spent_amount: Decimal [default],
        period_start: Option<Timestamp>,
        period_end: Option<Timestamp>,
        created_at: Timestamp [default],
        updated_at: Timestamp [default],
        state_version: i64 [default],
    }
    key: [tenant_id, id],
    tenant: tenant_id,
    rank: 517,
}

/// The room's tables and views.
pub static ALL: &[&Table] = &[
    &OBJECTIVES,
    &SCOPED_OBJECTIVES,
    &PLANS,
    &SCOPED_PLANS,
    &TASKS,
    &SCOPED_TASKS,
    &SKILL_INVOCATIONS,
    &SCOPED_SKILL_INVOCATIONS,
    &TRENDS,
    &SCOPED_TRENDS,
    &SWARM_CAMPAIGNS,
    &SWARM_GOALS,
    &SWARM_TASKS,
    &SWARM_TASK_DEPENDENCIES,
    &SWARM_ENVELOPES,
    &SWARM_WORKER_RUNS,
    &SWARM_WORKER_RESULTS,
    &SWARM_JUDGE_DECISIONS,
    &SWARM_DECISIONS_IN_FORCE,
    &SWARM_MEDIA_ASSETS,
    &SWARM_PUBLISH_EVENTS,
    &SWARM_WALLETS,
    &SWARM_TRANSACTIONS,
    &SWARM_BUDGETS,
];
