-- A record as version 4 of the schema left it (its own statements, dumped): a bag that is over,
-- with waste, and one that runs under another policy; a failure, a pilot, hosts with a history,
-- tokens, a site job. tests/integration/test_sqlite_version4.py
PRAGMA application_id = 1668249209;
PRAGMA user_version = 4;
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
        last_row INTEGER, policy TEXT);
INSERT INTO "bags" VALUES(1,'{"argv":["/bin/true"],"space":{"type":"axis","name":"x","values":{"type":"range","start":"100","step":"1","count":4}}}',NULL,4,0,'finished','',1000.5,2000.5,3,1,1,7,NULL);
INSERT INTO "bags" VALUES(2,'{"argv":["/bin/true"],"space":{"type":"axis","name":"x","values":{"type":"range","start":"100","step":"1","count":3}},"name":"n","owner":"ann","key":"k"}','k',5,1,'running','',1000.5,0.0,0,0,8,NULL,'{"rank":"1","only_sites":["here"]}');
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
INSERT INTO "ends" VALUES(1,1,0,1,1,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "ends" VALUES(2,1,1,1,2,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "ends" VALUES(3,1,2,1,3,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "ends" VALUES(4,1,3,1,4,7,1,1,1,3,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL,1,NULL,0);
INSERT INTO "ends" VALUES(5,1,0,1,5,7,1,3,0,1,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "ends" VALUES(6,1,1,1,6,7,1,0,0,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "ends" VALUES(7,1,2,1,7,7,2,6,0,1,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL,NULL,NULL,0);
INSERT INTO "ends" VALUES(8,2,0,1,1,7,1,0,1,0,0,1000.1,1000.2,1000.3,1001.7,1001.8,1.25,3412,0,0,NULL,NULL,NULL,NULL,0);
CREATE TABLE files (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL,
        size INTEGER NOT NULL,
        digest TEXT,
        data BLOB,
        packed INTEGER NOT NULL,
        executable INTEGER NOT NULL);
CREATE TABLE hosts (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, first REAL NOT NULL DEFAULT 0, heard REAL NOT NULL DEFAULT 0, done INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, site TEXT NOT NULL DEFAULT '', slots INTEGER NOT NULL DEFAULT 0, tags TEXT NOT NULL DEFAULT '{}', machine TEXT NOT NULL DEFAULT '', history TEXT NOT NULL DEFAULT '');
INSERT INTO "hosts" VALUES(1,'node1',50.0,1001.8,5,1,'here',4,'{"arch":"x86"}','m','{"site":"here","done":1.5,"bans":{"ann":{"since":5.0}}}');
INSERT INTO "hosts" VALUES(2,'node2',1001.8,1001.8,0,0,'',0,'{}','','');
CREATE TABLE jobs (
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        site TEXT NOT NULL,
        slots INTEGER NOT NULL,
        submitted REAL NOT NULL,
        status TEXT NOT NULL,
        ended REAL NOT NULL DEFAULT 0,
        reason TEXT NOT NULL DEFAULT '');
INSERT INTO "jobs" VALUES(1,'1-1','local',4,5.0,'submitted',0.0,'');
CREATE TABLE outputs (row INTEGER PRIMARY KEY, stdout, stderr);
INSERT INTO "outputs" VALUES(4,NULL,'no
');
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
INSERT INTO "pilots" VALUES(7,'key-of-pilot-7','digest','node1',4,'here','','{"arch":"x86"}','1',900.25,'active',0.0,'',0,0,0,'m','b','ann');
CREATE TABLE reopenings (
        bag INTEGER NOT NULL,
        number INTEGER NOT NULL,
        row INTEGER NOT NULL,
        named INTEGER NOT NULL,
        tasks BLOB,
        memory REAL NOT NULL,
        time REAL NOT NULL,
        PRIMARY KEY (bag, number)) WITHOUT ROWID;
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
INSERT INTO "segments" VALUES(2,1,'{"space":{"type":"axis","name":"x","values":{"type":"values","items":["a","b"]}}}','s');
CREATE TABLE server (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, last_bag INTEGER NOT NULL DEFAULT 0);
INSERT INTO "server" VALUES(1,1,0);
CREATE TABLE synced (pilot INTEGER PRIMARY KEY, number INTEGER NOT NULL);
INSERT INTO "synced" VALUES(7,3);
CREATE TABLE tokens (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        owner TEXT NOT NULL,
        digest TEXT NOT NULL,
        created REAL NOT NULL,
        expires REAL NOT NULL,
        revoked REAL NOT NULL);
INSERT INTO "tokens" VALUES(1,'n','user','ann','d',1.0,0.0,0.0);
INSERT INTO "tokens" VALUES(2,'o','admin','','e',2.0,0.0,3.0);
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
