-- Holds a number; nothing changes here.
SELECT 1;
