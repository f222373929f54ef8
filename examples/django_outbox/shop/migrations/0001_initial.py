"""Table of orders. The table of the outbox has its own migration, in greendot.integrations.django."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """First migration."""

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
    )
