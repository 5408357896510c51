"""Tests of the Python package with the binary that `PKGTOOL_BIN` names; `tests/it/packaging.rs` runs them."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import typing
import unittest
from pathlib import Path
from unittest import mock

import pkgtool
from pkgtool import _binary

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
BINARY = os.environ["PKGTOOL_BIN"]


def has(command, option="--help"):
    """Returns whether the binary has a command with this option; a build may lack it."""
    ran = subprocess.run([BINARY, command, "--help"], capture_output=True, text=True)
    return ran.returncode == 0 and option in ran.stdout


class Typed(unittest.TestCase):
    """Holds documents against their types."""

    def assert_type(self, value, kind, place):
        """Fails unless the value is of that type, down to its last key."""
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind is typing.Any:
            return
        if typing.is_typeddict(kind):
            self.assertIsInstance(value, dict, place)
            hints = typing.get_type_hints(kind)
            self.assertLessEqual(set(value), set(hints), f"{place}: a key without a type")
            self.assertLessEqual(kind.__required_keys__, set(value), f"{place}: a key is missing")
            for key, inner in value.items():
                self.assert_type(inner, hints[key], f"{place}/{key}")
        elif origin is list:
            self.assertIsInstance(value, list, place)
            for number, inner in enumerate(value):
                self.assert_type(inner, arguments[0], f"{place}/{number}")
        elif origin is dict:
            self.assertIsInstance(value, dict, place)
            for key, inner in value.items():
                self.assert_type(inner, arguments[1], f"{place}/{key}")
        elif origin is typing.Union and value is None:
            self.assertIn(type(None), arguments, place)
        elif origin is typing.Union:
            kinds = [each for each in arguments if each is not type(None)]
            if len(kinds) == 1:
                self.assert_type(value, kinds[0], place)
            else:
                self.assertIn(type(value), kinds, f"{place}: {value!r}")
        else:
            self.assertIs(type(value), kind, f"{place}: {value!r}")


class Validation(unittest.TestCase):
    def test_findings_have_their_places(self):
        report = pkgtool.validate(FIXTURES / "readme-json")
        self.assertFalse(report.ok)
        self.assertEqual((report.packages, report.errors, report.warnings), (1, 1, 0))
        (finding,) = report.findings
        self.assertEqual((finding.code, finding.rule), ("PKG034", "tensor-shape"))
        self.assertEqual((finding.severity, finding.line, finding.column), ("error", 18, 38))
        self.assertEqual(finding.end, pkgtool.Position(18, 39, 508))
        self.assertEqual(finding.pointer, "/variants/0/methods/forward/outputs/0/shape/1")
        self.assertEqual(finding.help, "the model has float32[2, 4]")
        self.assertTrue(Path(finding.path).samefile(FIXTURES / "readme-json/lantern/xnnpack/config.json"))
        self.assertEqual(finding.raw["span"]["start"]["offset"], 507)
        lines = str(report).splitlines()
        self.assertIn(":18:38: error[PKG034] output 0 of", lines[0])
        self.assertEqual(lines[-1], "1 package checked: 1 error")

    def test_clean_packages_are_ok(self):
        report = pkgtool.validate(str(ROOT / "packages-examples"))
        self.assertTrue(report.ok, report)
        self.assertGreater(report.packages, 1)

    def test_several_paths_are_checked_together(self):
        report = pkgtool.validate(FIXTURES / name for name in ("readme", "readme-json"))
        self.assertEqual((report.packages, report.errors), (2, 6))

    def test_no_paths_are_not_the_working_directory(self):
        with self.assertRaises(ValueError):
            pkgtool.validate([])

    def test_model_files_stay_closed(self):
        self.assertTrue(pkgtool.validate(FIXTURES / "readme-json", model_files=False).ok)

    def test_warnings_count_where_they_are_denied(self):
        with tempfile.TemporaryDirectory() as directory:
            shutil.copytree(FIXTURES / "readme-json", directory, dirs_exist_ok=True)
            config = Path(directory, "lantern/xnnpack/config.json")
            config.write_text(config.read_text().replace("[2, 5]", "[2, 4]"))
            self.assertTrue(pkgtool.validate(directory).ok)
            # A file that no config names is a warning.
            model = config.parent / "lantern_xnnpack_fp32.pte"
            shutil.copy(model, config.parent / "lantern_xnnpack_int8.pte")
            told = pkgtool.validate(directory)
            self.assertEqual((told.ok, told.errors), (True, 0), told)
            self.assertGreater(told.warnings, 0)
            self.assertFalse(pkgtool.validate(directory, deny_warnings=True).ok)

    def test_nothing_to_check_is_no_success(self):
        with tempfile.TemporaryDirectory() as directory:
            with self.assertRaises(pkgtool.NothingFound) as raised:
                pkgtool.validate(directory)
        self.assertEqual(raised.exception.exit_code, 3)
        self.assertIn("nothing to check", str(raised.exception))

    def test_failures_of_the_tool_are_exceptions(self):
        with self.assertRaises(pkgtool.PkgtoolError) as raised:
            pkgtool.validate("no/such/path")
        self.assertIn("no/such/path", str(raised.exception))
        self.assertEqual(raised.exception.exit_code, 2)
        self.assertEqual(raised.exception.command[-1], "no/such/path")
        for options in ({"arguments": ["--no-such-option"]}, {"jobs": -1}, {"precisions": "missing.json"}):
            with self.subTest(options), self.assertRaises(pkgtool.PkgtoolError) as raised:
                pkgtool.validate(FIXTURES / "readme-json", **options)
            self.assertEqual(raised.exception.exit_code, 2)

    def test_a_path_that_looks_like_an_option_is_a_path(self):
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory, "--exit-zero")
            shutil.copytree(FIXTURES / "readme-json", place)
            before = os.getcwd()
            os.chdir(directory)
            try:
                report = pkgtool.validate("--exit-zero")
            finally:
                os.chdir(before)
        self.assertFalse(report.ok)

    def test_names_outside_ascii(self):
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory, "模型 ü")
            shutil.copytree(FIXTURES / "readme-json", place)
            (finding,) = pkgtool.validate(place).findings
        self.assertIn("模型 ü", finding.path)

    @unittest.skipUnless(has("validate", "--select"), "the binary has no `validate --select`")
    def test_rules_are_chosen(self):
        place = FIXTURES / "readme"
        chosen = pkgtool.validate(place, select=["PKG019", "file-missing"], config=False)
        self.assertEqual({finding.code for finding in chosen.findings}, {"PKG019", "PKG015"})
        rest = pkgtool.validate(place, ignore=["PKG019"])
        self.assertEqual((rest.errors, "PKG019" in str(rest)), (4, False))
        with self.assertRaises(pkgtool.PkgtoolError):
            pkgtool.validate(place, select=["no-such-rule"])

    @unittest.skipUnless(has("validate", "--baseline"), "the binary has no `validate --baseline`")
    def test_what_is_known_is_not_told(self):
        with tempfile.TemporaryDirectory() as directory:
            known = Path(directory, "known.json")
            place = FIXTURES / "readme"
            pkgtool.validate(place, arguments=[f"--write-baseline={known}"])
            self.assertTrue(pkgtool.validate(place, baseline=known).ok)

    def test_a_report_is_not_changed(self):
        report = pkgtool.validate(FIXTURES / "readme-json")
        with self.assertRaises(AttributeError):
            report.ok = True


class Inspection(Typed):
    def test_a_model_tells_its_signature(self):
        info = pkgtool.inspect(FIXTURES / "models" / "dyn_batch_xnnpack_fp32.pte")
        self.assertEqual((info["format"], info["size_bytes"]), ("executorch", 5264))
        forward = info["methods"]["forward"]
        self.assertEqual(forward["inputs"][0]["dtype"], "float32")
        self.assertEqual(forward["inputs"][0]["shape"], [-1, 3, 32, 32])
        self.assertEqual(forward["delegates"], ["XnnpackBackend"] * 2)

    def test_types_are_those_of_every_document(self):
        models = [
            path
            for place in ("models", "payloads", "executorch", "decoders", "coreml")
            for path in sorted((FIXTURES / place).rglob("*"))
            if path.suffix in (".pte", ".bpte", ".ptd", ".onnx", ".mlmodel", ".mlpackage")
        ]
        read = set()
        for model in models:
            try:
                info = pkgtool.inspect(model)
            except pkgtool.PkgtoolError:
                # Some are broken on purpose.
                continue
            with self.subTest(model.name):
                read.add(info["format"])
                self.assert_type(info, pkgtool.ModelInfo, model.name)
        self.assertGreaterEqual(read, {"executorch", "onnx", "coreml"})

    def test_what_is_no_model_is_an_exception(self):
        with self.assertRaises(pkgtool.PkgtoolError) as raised:
            pkgtool.inspect(__file__)
        self.assertIn("test_package.py", str(raised.exception))


class Authoring(Typed):
    @unittest.skipUnless(has("init"), "the binary has no `init`")
    def test_a_config_is_written_and_is_valid(self):
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory, "lantern", "xnnpack")
            place.mkdir(parents=True)
            shutil.copy(FIXTURES / "readme-json/lantern/xnnpack/lantern_xnnpack_fp32.pte", place)
            with self.assertRaisesRegex(pkgtool.PkgtoolError, "--license"):
                pkgtool.init(directory, family="lantern", capability="classification")
            known = {"family": "lantern", "license": "mit", "capability": ["classification"]}
            told = pkgtool.init(directory, **known, dry_run=True)
            self.assert_type(told, pkgtool.Written, "init")
            self.assertEqual([config["written"] for config in told["configs"]], [False])
            self.assertFalse((place / "config.json").exists())
            pkgtool.init(directory, **known)
            self.assertEqual((place / "config.json").read_text(), told["configs"][0]["config"])
            self.assertTrue(pkgtool.validate(directory).ok)
            (place / "lantern_xnnpack_fp32.pte").unlink()
            (place / "config.json").unlink()
            with self.assertRaises(pkgtool.NothingFound):
                pkgtool.init(directory, **known)

    @unittest.skipUnless(has("fix"), "the binary has no `fix`")
    def test_a_config_is_mended(self):
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory, "package")
            shutil.copytree(FIXTURES / "readme-json", place)
            told = pkgtool.fix(place, check=True)
            self.assert_type(told, pkgtool.Mended, "fix")
            self.assertEqual((told["summary"]["fixed"], told["summary"]["written"]), (1, False))
            self.assertFalse(pkgtool.validate(place).ok)
            self.assertTrue(pkgtool.fix([place])["files"][0]["written"])
            self.assertTrue(pkgtool.validate(place).ok)
            with self.assertRaises(ValueError):
                pkgtool.fix([])


class TheBinary(unittest.TestCase):
    def test_the_version_is_a_version(self):
        self.assertRegex(pkgtool.version(), r"^\d+\.\d+\.\d+")

    def test_the_variable_goes_first_and_is_not_passed_over(self):
        self.assertEqual(pkgtool.binary(), BINARY)
        with mock.patch.dict(os.environ, PKGTOOL_BIN="no/such/binary"):
            with self.assertRaises(pkgtool.BinaryNotFound) as raised:
                pkgtool.version()
        self.assertIn("no/such/binary", str(raised.exception))

    def test_the_installed_one_goes_before_path(self):
        with tempfile.TemporaryDirectory() as directory:
            scripts, path = Path(directory, "scripts"), Path(directory, "path")
            for place in (scripts, path):
                place.mkdir()
            executable(path / "pkgtool", "#!/bin/sh\n")
            with mock.patch.dict(os.environ, PATH=str(path)), mock.patch.object(
                _binary, "_installed", lambda: iter([scripts])
            ):
                os.environ.pop("PKGTOOL_BIN")
                self.assertEqual(pkgtool.binary(), str(path / "pkgtool"))
                executable(scripts / "pkgtool", "#!/bin/sh\n")
                self.assertEqual(pkgtool.binary(), str(scripts / "pkgtool"))
                os.environ["PATH"] = directory
                shutil.rmtree(scripts)
                with self.assertRaises(pkgtool.BinaryNotFound):
                    pkgtool.binary()

    def test_other_programs_are_told_from_it(self):
        told = {
            "#!/bin/sh\necho hello\n": "no JSON",
            "#!/bin/sh\necho '{\"version\": 2}'\n": "another version of JSON",
            "#!/bin/sh\nkill -9 $$\n": "signal 9",
            "#!/bin/sh\nexit 70\n": "ended with 70",
            "#!/no/such/interpreter\n": "cannot be run",
        }
        for script, words in told.items():
            with tempfile.TemporaryDirectory() as directory, self.subTest(words):
                path = executable(Path(directory, "pkgtool"), script)
                with mock.patch.dict(os.environ, PKGTOOL_BIN=str(path)):
                    with self.assertRaises(pkgtool.PkgtoolError) as raised:
                        pkgtool.validate(FIXTURES)
                self.assertIn(words, str(raised.exception))

    def test_one_that_hangs_is_stopped(self):
        with tempfile.TemporaryDirectory() as directory:
            path = executable(Path(directory, "pkgtool"), "#!/bin/sh\nexec sleep 60\n")
            with mock.patch.dict(os.environ, PKGTOOL_BIN=str(path)):
                with self.assertRaisesRegex(pkgtool.PkgtoolError, "stopped after 0.2 s"):
                    pkgtool.validate(FIXTURES, timeout=0.2)

    def test_the_module_is_the_binary(self):
        command = [sys.executable, "-m", "pkgtool", "validate", str(FIXTURES / "readme-json")]
        ran = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(ran.returncode, 1, ran)
        self.assertIn("PKG034", ran.stdout)


def executable(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


if __name__ == "__main__":
    unittest.main()
