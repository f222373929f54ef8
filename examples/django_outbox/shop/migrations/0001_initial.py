"""The table of orders. That of the outbox is made by `greendot outbox install`."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """The first."""

    initial = True
    dependencies = ()
    operations = (
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("user", models.CharField(max_length=128)),
                ("item", models.CharField(max_length=100)),
            ],
        ),
        migrations.CreateModel(
            name="Outbox",
            fields=[("id", models.BigAutoField(primary_key=True, serialize=False))],
            options={"managed": False, "db_table": "greendot_outbox"},
        ),
    )
