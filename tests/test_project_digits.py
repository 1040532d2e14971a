"""What a project does with the defaults and nothing else: digits, classified well, exported and proved."""

import time
from pathlib import Path

from projects import Project, bake_project, numbers, read_json

SEEDS = ("0", "1", "2")
LEAST_MEAN_ACCURACY = 0.985
LARGEST_DIFFERENCE = 1e-4


def fit_and_test(project: Project, seed: str) -> float:
    start = time.perf_counter()
    run = project.fit("--seed_everything", seed)
    print(f"seed {seed}: fit took {time.perf_counter() - start:.1f} s")
    project.run("test")
    return numbers(run / "test")["test/accuracy"]


def test_the_defaults_reach_the_stated_accuracy_and_export_the_model_that_reached_it(tmp_path: Path) -> None:
    project = bake_project(tmp_path)
    accuracies = [fit_and_test(project, seed) for seed in SEEDS]
    print(f"test accuracies {accuracies}")
    assert sum(accuracies) / len(accuracies) >= LEAST_MEAN_ACCURACY
    project.run("export", "--output", "bundle")
    checks = read_json(project.folder / "bundle" / "model.json")["checks"]
    assert abs(checks["test_split"]["accuracy"]["exported"] - accuracies[-1]) < 1e-6
    assert max(checks["test_split"]["largest_difference"].values()) <= LARGEST_DIFFERENCE
    assert set(checks["batch_sizes"]) == {"1", "2", "7", "64"}
