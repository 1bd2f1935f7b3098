-- One row per committed batch: its cost is the sync, not the number of events.
CREATE TABLE batch (
    first  INTEGER PRIMARY KEY,
    last   INTEGER NOT NULL,
    crc    INTEGER NOT NULL,
    events BLOB NOT NULL
);
CREATE INDEX batch_last ON batch (last);
CREATE TABLE snapshot (
    position INTEGER PRIMARY KEY,
    crc      INTEGER NOT NULL,
    state    BLOB NOT NULL
);
-- Whoever opened last leads; a writer with an older epoch is refused.
CREATE TABLE leader (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    epoch    INTEGER NOT NULL
);
INSERT INTO leader VALUES (1, 0);
-- Written to find out whether the disk takes writes again.
CREATE TABLE probe (count INTEGER NOT NULL);
INSERT INTO probe VALUES (0);
PRAGMA user_version = 1;
