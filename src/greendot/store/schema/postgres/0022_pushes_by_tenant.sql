-- Workers take an equal share of every tenant's due pushes.
CREATE INDEX greendot_pushes_due_by_tenant ON greendot_pushes (tenant, due_at) WHERE due_at IS NOT NULL;
