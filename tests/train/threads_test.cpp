// How many CPUs a process may use by its control groups, and how many threads a net gets.
#include "bie/train/threads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/support/scratch.h"

namespace bie::train::test {
namespace {

namespace fs = std::filesystem;

/// A machine whose control groups are mounted below a folder of its own.
class Groups : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((root() / path).parent_path());
    std::ofstream(root() / path) << text;
  }
  /// Writes the process's control group and one mounted hierarchy: its root, its mount point below the folder, type and
  /// options.
  void mount(const std::string& cgroup, const std::string& from, const std::string& at, const std::string& end) const {
    write("proc/cgroup", cgroup);
    write("proc/mountinfo", "22 1 0:20 / /proc rw,nosuid - proc proc rw\n31 22 0:26 " + from + " " +
                                (root() / at).string() + " rw,relatime shared:9 - " + end + "\n");
  }
  double quota() const { return cpu_quota(root() / "proc"); }
  fs::path root() const { return scratch_.path(""); }

  bie::test::Scratch scratch_;
};

constexpr const char* v2 = "cgroup2 cgroup2 rw,nsdelegate";
constexpr const char* v1 = "cgroup cgroup rw,cpu,cpuacct";

TEST_F(Groups, WithoutGroupsNothingLimits) {
  EXPECT_TRUE(std::isinf(quota()));
  mount("0::/\n", "/", "fs", v2);
  EXPECT_TRUE(std::isinf(quota())) << "the root has no cpu.max";
}

TEST_F(Groups, VersionTwo) {
  mount("0::/app/job\n", "/", "fs", v2);
  write("fs/app/job/cpu.max", "max 100000\n");
  EXPECT_TRUE(std::isinf(quota()));
  write("fs/app/job/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 1.5);
  write("fs/app/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 0.5) << "the group above allows less";
  write("fs/app/cpu.max", "800000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 1.5);
}

TEST_F(Groups, VersionOne) {
  mount("7:memory:/else\n4:cpu,cpuacct:/app\n0::/\n", "/", "fs/cpu", v1);
  write("fs/cpu/app/cpu.cfs_period_us", "50000\n");
  write("fs/cpu/app/cpu.cfs_quota_us", "-1\n");
  EXPECT_TRUE(std::isinf(quota()));
  write("fs/cpu/app/cpu.cfs_quota_us", "125000\n");
  EXPECT_DOUBLE_EQ(quota(), 2.5);
}

TEST_F(Groups, AContainerSeesItsOwnGroupAsTheMount) {
  mount("4:cpu:/docker/0123\n", "/docker/0123", "fs", v1);
  write("fs/cpu.cfs_period_us", "100000\n");
  write("fs/cpu.cfs_quota_us", "300000\n");
  EXPECT_DOUBLE_EQ(quota(), 3);
  mount("0::/../elsewhere\n", "/", "fs", v2);
  write("fs/cpu.max", "200000 100000\n");
  EXPECT_DOUBLE_EQ(quota(), 2);
}

TEST_F(Groups, TextThatSaysNothingLimitsNothing) {
  for (const char* text : {"", "max", "x 100000", "100000 0", "-5 100000", "100000 x", "nan 1"}) {
    mount("0::/\n", "/", "fs", v2);
    write("fs/cpu.max", text);
    EXPECT_TRUE(std::isinf(quota())) << text;
  }
  for (const char* text : {"", "0:", "::", "nonsense", "0::"}) {
    mount(text, "/", "fs", v2);
    EXPECT_TRUE(std::isinf(quota())) << text;
  }
}

TEST(UsableCpus, AreAtLeastOne) { EXPECT_GE(usable_cpus(), 1); }

TEST(ThreadsFor, FollowTheWorkOfAStep) {
  models::ModelConfig mlp;
  mlp.image = {1, 8, 8};
  mlp.classes = 10;
  mlp.hidden = 100;
  mlp.depth = 1;
  const double weights = 64 * 100 + 100 * 100 + 100 * 10;
  EXPECT_DOUBLE_EQ(multiply_adds(mlp), weights);
  EXPECT_EQ(threads_for(mlp, 64, 8), 1);
  for (const int threads : {2, 5, 8}) {
    const auto images = static_cast<std::int64_t>(std::ceil(threads * work_of_a_thread / weights));
    EXPECT_EQ(threads_for(mlp, images, 8), threads);
    EXPECT_EQ(threads_for(mlp, images, 1), 1) << "never more than there are";
  }
  EXPECT_EQ(threads_for(mlp, 1'000'000'000, 8), 8);
}

TEST(ThreadsFor, AConvolutionWorksAtEveryPixel) {
  models::ModelConfig resnet;
  resnet.arch = "resnet20";
  resnet.image = {3, 32, 32};
  resnet.classes = 10;
  // He et al. 2015: 41 million multiply-adds an image.
  EXPECT_NEAR(multiply_adds(resnet), 41e6, 1e6);
}

}  // namespace
}  // namespace bie::train::test
