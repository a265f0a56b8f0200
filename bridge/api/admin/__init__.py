"""The admin API below ``/v1/admin``: one router for each noun."""
