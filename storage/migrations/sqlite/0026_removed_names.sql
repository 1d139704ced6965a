-- A removed name is retired: its row stays, disabled and without rights, so that nobody else gets the name. A person's
-- former mail addresses are kept, because people who share an address count as one person.
ALTER TABLE actors ADD COLUMN removed_at INTEGER;
ALTER TABLE actors ADD COLUMN former_mails TEXT;
