-- A token of an app installation has one owner in a tenant. A token of provider `webhook` is a name an app chooses: each
-- user has their own.
DROP INDEX push_devices_by_token;
CREATE UNIQUE INDEX push_devices_by_token
    ON push_devices (tenant, provider, token, CASE provider WHEN 'webhook' THEN user ELSE '' END);
