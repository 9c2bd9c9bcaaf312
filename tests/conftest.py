import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("marti", deadline=None, derandomize=True)
settings.load_profile("marti")
