-- Statements of work: what owners announced, the one plan of each, and what it was charged.
-- `scope` is the cluster and policy whose daemon keeps them; numbers count up in it and are never given again.

CREATE TABLE statements (
    scope TEXT NOT NULL,
    number BIGINT NOT NULL,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    -- The job that it was found to be about; empty until one has come.
    job TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    born_s DOUBLE PRECISION NOT NULL,
    changed_s DOUBLE PRECISION NOT NULL,
    -- What its owner announced, and what is known of its job: JSON objects.
    announced TEXT NOT NULL,
    progress TEXT NOT NULL,
    PRIMARY KEY (scope, number)
);

CREATE INDEX statements_of_owner ON statements (scope, owner, number);

CREATE INDEX statements_by_state ON statements (scope, state, number);

-- A plan binds: it is written once, and never again for the same statement.
CREATE TABLE launch_plans (
    scope TEXT NOT NULL,
    number BIGINT NOT NULL,
    made_s DOUBLE PRECISION NOT NULL,
    plan TEXT NOT NULL,
    PRIMARY KEY (scope, number)
);

-- Double entry: each statement that ends has one line of its owner's account and one of the house, which sum to zero.
-- Amounts are millionths of the site's unit of value, and never money.
CREATE TABLE statement_ledger (
    scope TEXT NOT NULL,
    number BIGINT NOT NULL,
    account TEXT NOT NULL,
    time_s DOUBLE PRECISION NOT NULL,
    job TEXT NOT NULL,
    what TEXT NOT NULL,
    amount_micro BIGINT NOT NULL,
    PRIMARY KEY (scope, number, account)
);

CREATE INDEX statement_ledger_by_time ON statement_ledger (time_s);
