"""The Grafana dashboards as code: `make dashboards` writes deploy/grafana/dashboards from here."""
