"""Table of the outbox, created by Greendot's own SQL unless it exists."""

from django.db import migrations, models
from django.db.models.functions import Now

from greendot.integrations.django.table import create_table, drop_table


class Migration(migrations.Migration):
    """First migration."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Outbox",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("tenant", models.TextField(default="default")),
                ("target", models.TextField(choices=[("notification", "notification"), ("message", "message")])),
                ("user_id", models.TextField()),
                ("room", models.TextField(blank=True, null=True)),
                ("kind", models.TextField(blank=True, null=True)),
                ("name", models.TextField(blank=True, null=True)),
                ("body", models.JSONField()),
                ("key", models.TextField(blank=True, null=True)),
                ("importance", models.TextField(blank=True, null=True)),
                ("collapse_key", models.TextField(blank=True, null=True)),
                ("push", models.BooleanField(null=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=Now())),
                ("attempts", models.IntegerField(default=0)),
                ("error", models.TextField(blank=True, null=True)),
                ("failed_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={"managed": False, "db_table": "greendot_outbox", "verbose_name": "outbox row"},
        ),
        migrations.RunPython(create_table, drop_table),
    )
