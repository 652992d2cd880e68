"""Writes every dashboard into deploy/grafana/dashboards."""

from dashboards.pages import FOLDER, PAGES, text

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for page in PAGES:
        (FOLDER / f"{page.uid}.json").write_text(text(page), encoding="utf-8")
