-- A list of three or more words in a CHECK makes SQLite build a table in memory for every row it checks.
-- The hot tables compare word by word instead. The rule is the same and nothing stored changes, so only
-- the text of the schema is rewritten.

PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(sql,
    'source IN (''act'', ''intent'', ''swarm'', ''workflow'', ''replay'')',
    'source = ''act'' OR source = ''intent'' OR source = ''swarm'' OR source = ''workflow'' OR source = ''replay''')
    WHERE type = 'table' AND name = 'runs';
UPDATE sqlite_schema SET sql = replace(sql,
    'replay_mode IN (''freeze'', ''shadow'', ''retry'')',
    'replay_mode = ''freeze'' OR replay_mode = ''shadow'' OR replay_mode = ''retry''')
    WHERE type = 'table' AND name = 'runs';
UPDATE sqlite_schema SET sql = replace(sql,
    'node_type IN (''function'', ''agent'', ''hitl'', ''swarm'', ''workflow'', ''map'')',
    'node_type = ''function'' OR node_type = ''agent'' OR node_type = ''hitl'' OR node_type = ''swarm'' OR node_type = ''workflow'' OR node_type = ''map''')
    WHERE type = 'table' AND name = 'steps';
UPDATE sqlite_schema SET sql = replace(sql,
    'status IN (''pending'', ''ready'', ''awaiting_approval'', ''running'', ''judging'', ''completed'', ''failed'',
            ''skipped'', ''cancelled'', ''rolled_back'', ''retry_wait'', ''paused'', ''outcome_unknown'')',
    'status = ''pending'' OR status = ''ready'' OR status = ''awaiting_approval'' OR status = ''running'' OR status = ''judging'' OR status = ''completed'' OR status = ''failed'' OR status = ''skipped'' OR status = ''cancelled'' OR status = ''rolled_back'' OR status = ''retry_wait'' OR status = ''paused'' OR status = ''outcome_unknown''')
    WHERE type = 'table' AND name = 'steps';
UPDATE sqlite_schema SET sql = replace(sql,
    'kind IN (''tool'', ''job'', ''child_run'', ''compensation'')',
    'kind = ''tool'' OR kind = ''job'' OR kind = ''child_run'' OR kind = ''compensation''')
    WHERE type = 'table' AND name = 'effects';
UPDATE sqlite_schema SET sql = replace(sql,
    'status IN (''prepared'', ''dispatched'', ''succeeded'', ''failed'', ''unknown'')',
    'status = ''prepared'' OR status = ''dispatched'' OR status = ''succeeded'' OR status = ''failed'' OR status = ''unknown''')
    WHERE type = 'table' AND name = 'effects';
UPDATE sqlite_schema SET sql = replace(sql,
    'subject_type IN (''task'', ''worker_run'', ''worker_result'', ''judge_decision'', ''transaction'',
            ''publish_event'', ''other'')',
    'subject_type = ''task'' OR subject_type = ''worker_run'' OR subject_type = ''worker_result'' OR subject_type = ''judge_decision'' OR subject_type = ''transaction'' OR subject_type = ''publish_event'' OR subject_type = ''other''')
    WHERE type = 'table' AND name = 'audit_log_entries';
UPDATE sqlite_schema SET sql = replace(sql,
    'actor_type IN (''system'', ''human'', ''external_node'')',
    'actor_type = ''system'' OR actor_type = ''human'' OR actor_type = ''external_node''')
    WHERE type = 'table' AND name = 'audit_log_entries';
UPDATE sqlite_schema SET sql = replace(sql,
    'record_kind IN (''objective'', ''plan'', ''task'', ''skill_invocation'', ''trend'', ''approval_request'',
            ''audit_log'', ''agent_execution'', ''agent'', ''agent_job'', ''agent_output'')',
    'record_kind = ''objective'' OR record_kind = ''plan'' OR record_kind = ''task'' OR record_kind = ''skill_invocation'' OR record_kind = ''trend'' OR record_kind = ''approval_request'' OR record_kind = ''audit_log'' OR record_kind = ''agent_execution'' OR record_kind = ''agent'' OR record_kind = ''agent_job'' OR record_kind = ''agent_output''')
    WHERE type = 'table' AND name = 'record_scopes';

PRAGMA writable_schema = RESET;
