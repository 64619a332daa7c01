-- Versions of the policies. They are never changed and never deleted; one of them is active.
CREATE TABLE envoy_rls.versions (
    number     bigint      PRIMARY KEY CHECK (number > 0),
    state      text        NOT NULL CHECK (state IN ('active', 'superseded')),
    files      jsonb       NOT NULL, -- [{"name": "policies.yaml", "content": "…"}, …], in the order in which they are loaded
    sha256     bytea       NOT NULL CHECK (octet_length(sha256) = 32), -- of name, a zero byte, content, a zero byte, for each file
    author     text        NOT NULL,
    comment    text        NOT NULL CHECK (comment <> ''),
    created_at timestamptz NOT NULL DEFAULT now(),
    based_on   bigint      REFERENCES envoy_rls.versions, -- what was active before
    restores   bigint      REFERENCES envoy_rls.versions  -- whose files it has, if it is a rollback
);

CREATE UNIQUE INDEX versions_one_active ON envoy_rls.versions (state) WHERE state = 'active';

CREATE FUNCTION envoy_rls.keep_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'UPDATE' OR to_jsonb(NEW) - 'state' <> to_jsonb(OLD) - 'state' THEN
        RAISE EXCEPTION 'a version is never changed: only its state is; publish a new one';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER versions_keep BEFORE UPDATE OR DELETE ON envoy_rls.versions
    FOR EACH ROW EXECUTE FUNCTION envoy_rls.keep_version();

-- Every instance listens on this channel.
CREATE FUNCTION envoy_rls.tell_active() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('envoy_rls_policies', NEW.number::text);
    RETURN NEW;
END $$;

CREATE TRIGGER versions_tell AFTER INSERT OR UPDATE ON envoy_rls.versions
    FOR EACH ROW WHEN (NEW.state = 'active') EXECUTE FUNCTION envoy_rls.tell_active();

-- The instances that run, by their own account. One that was not seen for a while is gone.
CREATE TABLE envoy_rls.instances (
    id         text        PRIMARY KEY,
    version    bigint      NOT NULL, -- in force there
    policies   text        NOT NULL, -- the version of the policy set, as metrics and status show it
    kept       boolean     NOT NULL, -- it came from the instance's own file
    error      text        NOT NULL, -- why the active version is not in force there; empty if it is
    build      text        NOT NULL,
    since      timestamptz NOT NULL, -- when the version in force was loaded
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL
);
