-- Login and database of the nodes in production.yml. The login is not a superuser. The password is in the environment.
\getenv password GREENDOT_PASSWORD
CREATE ROLE greendot LOGIN PASSWORD :'password';
CREATE DATABASE greendot OWNER greendot;
