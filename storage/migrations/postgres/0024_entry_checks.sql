-- PostgreSQL keeps no copies of pages for a check that may fail: nothing changes here.
SELECT 1;
