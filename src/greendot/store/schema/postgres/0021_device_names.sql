-- A token of an app installation has one owner in a tenant. A token of provider `webhook` is a name an app chooses: each
-- user has their own.
DROP INDEX greendot_push_devices_by_token;
CREATE UNIQUE INDEX greendot_push_devices_by_token ON greendot_push_devices
    (tenant, provider, token_hash, (CASE provider WHEN 'webhook' THEN user_id ELSE '' END));
