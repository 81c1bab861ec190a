# SPDX-License-Identifier: MIT OR Apache-2.0
# Recipe for Spack: copy this directory to packages/portolan of a repository of recipes.

from spack.package import *


class Portolan(MakefilePackage):
    """Fast messages between the processes of parallel programs on Linux, over plain Ethernet and
    shared memory, with a libfabric provider for MPI programs and a component for Open MPI."""

    maintainers("portolan")

    license("MIT OR Apache-2.0")

    # The directory of the sources: spack dev-build, or `spack develop portolan@main`.
    version("main")

    variant("openmpi", default=False, description="Build the component btl/portolan of Open MPI")

    depends_on("rust@1.88:", type="build")
    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("libfabric@1.14:", type=("build", "link", "run"))
    # With its internal headers, which a component needs.
    depends_on("openmpi@4.1:5.0", when="+openmpi")

    requires("platform=linux")
    requires("target=x86_64:", "target=aarch64:", policy="one_of")

    def build(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("build", "--release", "--locked", "--package", "portolan-cli", "--package", "portolan-sim")
        bash = which("bash", required=True)
        bash("scripts/build-libraries.sh")
        if spec.satisfies("+openmpi"):
            bash("scripts/build-openmpi.sh")

    def install(self, spec, prefix):
        make("install", f"PREFIX={prefix}")

    def setup_run_environment(self, env):
        env.prepend_path("FI_PROVIDER_PATH", self.prefix.lib.libfabric)
