-- PostgreSQL keeps no copies of pages for a trigger that may refuse: nothing changes here.
SELECT 1;
