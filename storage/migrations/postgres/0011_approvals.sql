-- PostgreSQL has statistics and finds the approvals of a run by its index: nothing changes here.
SELECT 1;
