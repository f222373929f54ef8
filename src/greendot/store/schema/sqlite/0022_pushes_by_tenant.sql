-- Workers take an equal share of every tenant's due pushes.
CREATE INDEX pushes_due_by_tenant ON pushes (tenant, due_at) WHERE due_at IS NOT NULL;
