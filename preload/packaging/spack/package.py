# SPDX-License-Identifier: BSD-2-Clause
"""Recipe for Spack 1.0 or newer: copy it to packages/pinalloc/package.py of a repository."""

from spack_repo.builtin.build_systems.autotools import AutotoolsPackage

from spack.package import *


class Pinalloc(AutotoolsPackage):
    """A malloc to preload into programs that use RDMA, such as MPI applications: the heap never
    shrinks and is registered with the adapter ahead of time."""

    # Names that lead nowhere: there is no public place yet, and Spack asks for them. Put the tarball
    # of a release into a mirror or the directory of the stage, and install with --no-checksum.
    homepage = "https://pinalloc.invalid"
    url = "https://pinalloc.invalid/releases/pinalloc-1.0.0-rc5.tar.xz"
    manual_download = True

    license("BSD-2-Clause")

    # The tarball has this file in it, so its sha256 is for the copy in a repository.
    version("1.0.0-rc5")

    variant("libfabric", default=False, description="Tell libfabric's cache of memory that goes")
    variant("plots", default=False, description="Plots of pinalloc report")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("elfutils", type=("build", "link", "run"))
    depends_on("jansson")
    depends_on("rdma-core@33:")
    depends_on("libfabric", when="+libfabric")
    # Loaded at run time, by its name.
    depends_on("libunwind", type=("build", "link", "run"))
    depends_on("gnuplot", when="+plots", type="run")

    requires("platform=linux")
    requires("target=x86_64:", "target=aarch64:", policy="one_of")

    # Not Spack's jemalloc, which has tables for the addresses of the processor that builds: these are
    # the same on all.
    resource(
        name="jemalloc",
        url="https://github.com/jemalloc/jemalloc/releases/download/5.3.0/jemalloc-5.3.0.tar.bz2",
        sha256="2db82d1e7119df3e71b7640219b6dfe84789bc0537983c3b7ac4f7189aecfeaa",
        placement="jemalloc",
    )

    @property
    def jemalloc_source(self):
        return join_path(self.stage.source_path, "jemalloc")

    @property
    def jemalloc_root(self):
        return join_path(self.jemalloc_source, "root")

    def setup_build_environment(self, env):
        env.prepend_path("PKG_CONFIG_PATH", join_path(self.jemalloc_root, "lib", "pkgconfig"))

    def setup_run_environment(self, env):
        env.set("LIBPINALLOC", join_path(self.prefix.lib, "libpinalloc.so"))

    @run_before("configure")
    def build_jemalloc(self):
        # Kernels for arm64 have pages of up to 64 KiB.
        lg_page = 16 if self.spec.satisfies("target=aarch64:") else 12
        with working_dir(self.jemalloc_source):
            Executable("./configure")(
                f"--prefix={self.jemalloc_root}",
                "--disable-cxx",
                "--disable-doc",
                "--with-lg-hugepage=21",
                f"--with-lg-page={lg_page}",
                "--with-lg-vaddr=48",
            )
            make("build_lib_static")
            make("install_include", "install_lib_pc", "install_lib_static")

    def check(self):
        make("check", "TESTS=$(unit_tests)")
