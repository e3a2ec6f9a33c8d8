-- A record as version 6 of the schema left it (its own statements, dumped): a bag that is over,
-- whose failed task was tried again, and one that runs, both with input files.
-- tests/integration/test_sqlite_version6.py
PRAGMA application_id = 1668249209;
PRAGMA user_version = 6;
BEGIN TRANSACTION;
CREATE TABLE "bags" (
        id INTEGER PRIMARY KEY,
        spec TEXT NOT NULL,
        key TEXT,
        total INTEGER NOT NULL,
        open INTEGER NOT NULL,
        status TEXT NOT NULL,
        reason TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL,
        ended REAL NOT NULL DEFAULT 0,
        done INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0,
        first_row INTEGER NOT NULL,
        last_row INTEGER, policy TEXT, outputs TEXT NOT NULL DEFAULT '');
INSERT INTO "bags" VALUES(1,'{"argv":["/bin/true"],"space":{"type":"axis","name":"x","values":{"type":"range","start":"100","step":"1","count":4}},"inputs":[{"path":"fit.py","blob":{"digest":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":3}}]}',NULL,4,0,'finished','',1000.5,2002.5,3,1,1,5,NULL,'{}');
INSERT INTO "bags" VALUES(2,'{"argv":["/bin/true"],"space":{"type":"axis","name":"x","values":{"type":"range","start":"100","step":"1","count":3}},"name":"n","owner":"ann","key":"k","task_inputs":[{"source":"{x}.csv","path":"in.csv"}],"manifest":{"100.csv":{"digest":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","size":3}}}','k',3,0,'running','',1000.5,0.0,0,0,6,NULL,NULL,'{}');
CREATE TABLE causes (
        id INTEGER PRIMARY KEY,
        bag INTEGER NOT NULL,
        text TEXT NOT NULL,
        UNIQUE (bag, text));
INSERT INTO "causes" VALUES(1,1,'exit 3');
CREATE TABLE chunks (
        bag INTEGER NOT NULL,
        first INTEGER NOT NULL,
        stop INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        closed INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (bag, first)) WITHOUT ROWID;
INSERT INTO "chunks" VALUES(1,0,4,1,1);
INSERT INTO "chunks" VALUES(2,0,3,1,0);
CREATE TABLE ends (
        row INTEGER PRIMARY KEY,
        bag INTEGER NOT NULL,
        task INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        pilot INTEGER NOT NULL,
        host INTEGER NOT NULL,
        outcome INTEGER NOT NULL,
        counted INTEGER NOT NULL,
        exit_code INTEGER NOT NULL,
        signal INTEGER NOT NULL,
        sent REAL NOT NULL,
        fetched REAL NOT NULL,
        started REAL NOT NULL,
        ended REAL NOT NULL,
        delivered REAL NOT NULL,
        cpu_seconds REAL NOT NULL,
        memory_kb INTEGER NOT NULL,
        stdout_bytes INTEGER NOT NULL,
        stderr_bytes INTEGER NOT NULL,
        message TEXT,
        last_line TEXT, cause INTEGER, result TEXT, files INTEGER NOT NULL DEFAULT 0);
INSERT INTO "ends" VALUES(1,1,0,1,1,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,'','',NULL,NULL,0);
INSERT INTO "ends" VALUES(2,1,1,1,2,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,'','',NULL,NULL,0);
INSERT INTO "ends" VALUES(3,1,2,1,3,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,'','',NULL,NULL,0);
INSERT INTO "ends" VALUES(4,1,3,1,4,7,1,1,0,3,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,'','',1,NULL,0);
INSERT INTO "ends" VALUES(5,1,3,1,9,7,1,1,1,3,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,'','',1,NULL,0);
INSERT INTO "ends" VALUES(6,2,0,1,11,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,'','',NULL,NULL,0);
CREATE TABLE files (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL,
        size INTEGER NOT NULL,
        digest TEXT,
        data BLOB,
        packed INTEGER NOT NULL,
        executable INTEGER NOT NULL);
CREATE TABLE hosts (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, first REAL NOT NULL DEFAULT 0, heard REAL NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, site TEXT NOT NULL DEFAULT '', slots INTEGER NOT NULL DEFAULT 0, tags TEXT NOT NULL DEFAULT '{}', machine TEXT NOT NULL DEFAULT '', history TEXT NOT NULL DEFAULT '');
INSERT INTO "hosts" VALUES(1,'node1',1001.8,1001.8,4,2,'',0,'{}','','');
CREATE TABLE jobs (
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        site TEXT NOT NULL,
        slots INTEGER NOT NULL,
        submitted REAL NOT NULL,
        status TEXT NOT NULL,
        ended REAL NOT NULL DEFAULT 0,
        reason TEXT NOT NULL DEFAULT '', wall_seconds REAL NOT NULL DEFAULT 0, memory_mb INTEGER NOT NULL DEFAULT 0, disk_mb INTEGER NOT NULL DEFAULT 0, gpus INTEGER NOT NULL DEFAULT 0, handle TEXT NOT NULL DEFAULT '', trial INTEGER NOT NULL DEFAULT 0, wanted_by TEXT NOT NULL DEFAULT '');
CREATE TABLE outputs (row INTEGER PRIMARY KEY, stdout, stderr);
CREATE TABLE pilots (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL,
        credential TEXT NOT NULL,
        host TEXT NOT NULL,
        slots INTEGER NOT NULL,
        site TEXT NOT NULL,
        job TEXT NOT NULL,
        tags TEXT NOT NULL,
        version TEXT NOT NULL,
        enrolled REAL NOT NULL,
        status TEXT NOT NULL,
        changed REAL NOT NULL DEFAULT 0,
        reason TEXT NOT NULL DEFAULT '', memory_mb INTEGER NOT NULL DEFAULT 0, disk_mb INTEGER NOT NULL DEFAULT 0, gpus INTEGER NOT NULL DEFAULT 0, machine TEXT NOT NULL DEFAULT '', boot TEXT NOT NULL DEFAULT '', owner TEXT NOT NULL DEFAULT '');
INSERT INTO "pilots" VALUES(7,'key-of-pilot-7','digest','node1',4,'here','','{"arch":"x86"}','1',900.25,'active',0.0,'',0,0,0,'','','');
CREATE TABLE reopenings (
        bag INTEGER NOT NULL,
        number INTEGER NOT NULL,
        row INTEGER NOT NULL,
        named INTEGER NOT NULL,
        tasks BLOB,
        memory REAL NOT NULL,
        time REAL NOT NULL, memory_mb INTEGER NOT NULL DEFAULT 0, limit_seconds REAL NOT NULL DEFAULT 0,
        PRIMARY KEY (bag, number)) WITHOUT ROWID;
INSERT INTO "reopenings" VALUES(1,1,4,0,X'3A3000000100000000000000100000000300',1.0,1.0,0,0.0);
CREATE TABLE result_names (
        bag INTEGER NOT NULL,
        place INTEGER NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (bag, place)) WITHOUT ROWID;
CREATE TABLE segments (
        bag INTEGER NOT NULL,
        number INTEGER NOT NULL,
        segment TEXT NOT NULL,
        key TEXT,
        PRIMARY KEY (bag, number)) WITHOUT ROWID;
CREATE TABLE server (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, last_bag INTEGER NOT NULL DEFAULT 0);
INSERT INTO "server" VALUES(1,1,0);
CREATE TABLE sites (
        name TEXT PRIMARY KEY,
        record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE synced (pilot INTEGER PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE tokens (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        owner TEXT NOT NULL,
        digest TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL NOT NULL,
        revoked REAL NOT NULL);
CREATE UNIQUE INDEX counted ON ends (bag, task) WHERE counted = 1;
CREATE INDEX failures ON ends (bag, task) WHERE counted = 1 AND outcome <> 0;
CREATE INDEX uncounted ON ends (bag, task, outcome) WHERE counted = 0;
CREATE INDEX lost ON ends (epoch, sequence) WHERE outcome = 6;
CREATE INDEX pilots_not_left ON pilots (id) WHERE status <> 'left';
CREATE INDEX jobs_not_ended ON jobs (row) WHERE status <> 'ended';
CREATE UNIQUE INDEX bags_key ON bags (key) WHERE key IS NOT NULL;
CREATE INDEX bags_unfinished ON bags (id) WHERE status IN ('running', 'paused');
CREATE UNIQUE INDEX segments_key ON segments (bag, key) WHERE key IS NOT NULL;
CREATE INDEX failures_by_cause ON ends (bag, cause, outcome, task, host)
        WHERE counted = 1 AND outcome <> 0;
CREATE INDEX returned ON ends (bag) WHERE counted = 1 AND files > 0;
CREATE INDEX files_digest ON files (digest) WHERE digest IS NOT NULL;
CREATE INDEX tokens_not_revoked ON tokens (id) WHERE revoked = 0;
COMMIT;
