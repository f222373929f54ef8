CREATE TABLE greendot_tenants (
    tenant     text COLLATE "C" PRIMARY KEY,
    created_at bigint NOT NULL
);

CREATE TABLE greendot_api_keys (
    tenant     text COLLATE "C" NOT NULL, -- empty: of those who run the servers
    name       text COLLATE "C" NOT NULL,
    scopes     text NOT NULL,             -- with spaces between them
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE greendot_api_secrets (
    id         text COLLATE "C" PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    hash       bytea NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    used_at    bigint
);
CREATE INDEX greendot_api_secrets_by_key ON greendot_api_secrets (tenant, name);
