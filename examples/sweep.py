"""What more guidance buys, and what it costs: accuracy and distance over λ."""

import sys

import selfcal

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
run = selfcal.train("digits", "cg-sc-all", 0.02, "runs/sweep", steps=steps, show_progress=True)
report = run.evaluate(scales=[0.5, 1, 2, 4], count=min(1000, 10 * steps), intervals=False, show_progress=True)
print("λ     accuracy  intra-FID")
for row in report["results"]:
    print(f"{row['scale']:<5g} {row['accuracy']:<9.3f} {row['intra_fid']:.1f}")
