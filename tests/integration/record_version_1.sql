-- A record as covey 1 of the schema left it (its own statements, dumped): two bags, a failure
-- that was reopened and came back, a time limit, a loss. tests/integration/test_sqlite_version1.py
PRAGMA application_id = 1668249209;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE bags (
        id INTEGER PRIMARY KEY,
        spec TEXT NOT NULL,
        key TEXT,
        total INTEGER NOT NULL,
        status TEXT NOT NULL,
        created REAL NOT NULL,
        ended REAL NOT NULL DEFAULT 0,
        done INTEGER NOT NULL DEFAULT 0,
        failed INTEGER NOT NULL DEFAULT 0,
        tries_from INTEGER NOT NULL DEFAULT 0,
        first_row INTEGER NOT NULL,
        last_row INTEGER);
INSERT INTO "bags" VALUES(1,'{"argv":["/bin/true"],"space":{"type":"axis","name":"x","values":{"type":"range","start":"100","step":"1","count":6}},"name":"","owner":"","key":"","env":{},"chdir":"","retries":0,"limit_seconds":0.0,"idempotent":true}',NULL,6,'running',1000.5,0.0,0,0,5,1,NULL);
INSERT INTO "bags" VALUES(2,'{"argv":["/bin/true"],"space":{"type":"axis","name":"x","values":{"type":"range","start":"100","step":"1","count":3}},"name":"n","owner":"","key":"k","env":{},"chdir":"","retries":1,"limit_seconds":2.5,"idempotent":true}','k',3,'running',1000.5,0.0,0,0,0,1,NULL);
CREATE TABLE chunks (
        bag INTEGER NOT NULL,
        first INTEGER NOT NULL,
        stop INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        closed INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (bag, first)) WITHOUT ROWID;
INSERT INTO "chunks" VALUES(1,0,3,1,0);
INSERT INTO "chunks" VALUES(1,3,6,1,0);
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
        last_line TEXT);
INSERT INTO "ends" VALUES(1,1,0,1,1,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL);
INSERT INTO "ends" VALUES(2,1,1,1,2,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL);
INSERT INTO "ends" VALUES(3,1,2,1,3,7,1,1,0,1,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL);
INSERT INTO "ends" VALUES(4,1,3,1,4,7,1,2,0,1,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL);
INSERT INTO "ends" VALUES(5,1,4,1,5,7,2,6,0,1,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL);
INSERT INTO "ends" VALUES(6,1,2,1,50,7,1,1,1,3,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL);
INSERT INTO "ends" VALUES(7,1,5,1,51,7,1,1,1,-1,9,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL);
INSERT INTO "ends" VALUES(8,1,3,1,52,7,1,1,0,1,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL);
CREATE TABLE hosts (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
INSERT INTO "hosts" VALUES(1,'node1');
INSERT INTO "hosts" VALUES(2,'node2');
CREATE TABLE jobs (
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        site TEXT NOT NULL,
        slots INTEGER NOT NULL,
        submitted REAL NOT NULL,
        status TEXT NOT NULL,
        ended REAL NOT NULL DEFAULT 0,
        reason TEXT NOT NULL DEFAULT '');
CREATE TABLE outputs (row INTEGER PRIMARY KEY, stdout, stderr);
INSERT INTO "outputs" VALUES(3,NULL,'bad');
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
        reason TEXT NOT NULL DEFAULT '');
INSERT INTO "pilots" VALUES(7,'key-of-pilot-7','digest','node1',4,'here','','{"arch":"x86"}','1',900.25,'active',0.0,'');
CREATE TABLE server (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL);
INSERT INTO "server" VALUES(1,1);
CREATE TABLE synced (pilot INTEGER PRIMARY KEY, number INTEGER NOT NULL);
INSERT INTO "synced" VALUES(7,4);
CREATE UNIQUE INDEX bags_key ON bags (key) WHERE key IS NOT NULL;
CREATE INDEX bags_running ON bags (id) WHERE status = 'running';
CREATE UNIQUE INDEX counted ON ends (bag, task) WHERE counted = 1;
CREATE INDEX failures ON ends (bag, task) WHERE counted = 1 AND outcome <> 0;
CREATE INDEX uncounted ON ends (bag, task, outcome) WHERE counted = 0;
CREATE INDEX lost ON ends (epoch, sequence) WHERE outcome = 6;
CREATE INDEX pilots_not_left ON pilots (id) WHERE status <> 'left';
CREATE INDEX jobs_not_ended ON jobs (row) WHERE status <> 'ended';
COMMIT;
