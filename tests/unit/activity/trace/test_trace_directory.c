/* SPDX-License-Identifier: MulanPSL-2.0 */
/* nputrace: where its files are put, and what is said if they cannot be. */
#include "activities.h"
#include "activity/steps/files.h"
#include "activity/trace/trace.h"
#include "base/fs.h"
#include "tmpdir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MS 1000000ull

static struct stage st;

static void begin(const char *more)
{
	stage_open(&st);
	stage_name(&st, 1, "kernel");
	stage_trace(&st, 10 * MS, more);
}

static void some_steps(void)
{
	for (uint64_t i = 5; i <= 7; i++) {
		RECORD(&st.recs, REC_MONITOR, rec_monitor, (i - 4) * 100 * MS, .kind = MONITOR_STEP,
		       .window = 1, .value = i, .rank = 3);
		ACTIVITY(&st, ACTIVITY_KERNEL, (i * 100 - 390) * MS, (i * 100 - 350) * MS,
			 .name = 1, .correlation = i, ON_DEVICE(1, 2));
		stage_tell(&st);
	}
}

static void finish(void)
{
	stage_stop(&st, 400 * MS);
	stage_close(&st);
}

TEST(trace_directory, all_files_have_one_mode)
{
	char path[4096];
	struct dirent *e;
	unsigned n = 0;

	begin("PROFILE_ANALYSE=true\nPROFILE_PROFILE_MEMORY=true");
	some_steps();
	finish();
	DIR *d = opendir(stage_left("_sonde"));
	while (d && (e = readdir(d))) {
		struct stat file;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", stage_left("_sonde"), e->d_name);
		CHECK_INT(stat(path, &file), 0);
		CHECK_INT(file.st_mode & 0777, 0640);
		n++;
	}
	closedir(d);
	CHECK_INT(n, 6);
}

TEST(trace_directory, who_its_job_is)
{
	char parent[64], path[4096];

	setenv("MASTER_PORT", "29500", 1); /* too late to be in /proc, and nobody's job changes */
	begin("");
	some_steps();
	finish();
	snprintf(path, sizeof(path), "%s/summary.json", stage_left("_sonde"));
	json_t *o = json_load_file(path, 0, NULL);
	CHECK(json_is_string(json_object_get(o, "job")));
	CHECK(json_is_string(json_object_get(o, "parent")));
	json_decref(o);
	snprintf(parent, sizeof(parent), "process %d of ", (int)getppid());
	char *who = trace_parent_of((uint32_t)getpid());
	CHECK(!strncmp(who, parent, strlen(parent)));
	free(who);
	who = trace_parent_of(999999999);
	CHECK_STR(who, "");
	free(who);
	who = trace_job_of(999999999);
	CHECK_STR(who, "");
	free(who);
	/* A process that was started by a launcher. */
	int up[2];
	CHECK_INT(pipe(up), 0);
	pid_t child = fork();
	if (!child) {
		char *const env[] = {(char[]){"MASTER_ADDR=10.0.0.7"}, (char[]){"XMASTER_PORT=1"},
				     (char[]){"MASTER_PORT=29501"}, (char[]){"SLURM_JOB_ID=12"},
				     NULL};
		char *const words[] = {(char[]){"sleep"}, (char[]){"60"}, NULL};

		fcntl(up[1], F_SETFD, FD_CLOEXEC);
		execve("/bin/sleep", words, env);
		_exit(127);
	}
	close(up[1]);
	CHECK_INT(read(up[0], parent, 1), 0); /* it runs, and has its environment in a moment */
	who = trace_job_of((uint32_t)child);
	for (int tries = 0; !*who && tries < 500; tries++) {
		usleep(10000);
		free(who);
		who = trace_job_of((uint32_t)child);
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	CHECK_STR(who, "Slurm job 12, master 10.0.0.7:29501");
	free(who);
}

/* Nothing that is larger than so many bytes can be written: as on a disk that is full. */
TEST(trace_directory, a_full_disk_is_told)
{
	struct rlimit limit, small;
	struct split_job job = {0};
	struct buf text = {0};
	struct err err = {0};

	signal(SIGXFSZ, SIG_IGN);
	CHECK_INT(getrlimit(RLIMIT_FSIZE, &limit), 0);
	small = (struct rlimit){1000, limit.rlim_max};
	begin("PROFILE_ANALYSE=true");
	some_steps();
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
	finish();
	CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
	CHECK(!stage_left("_sonde") && !stage_left(".tmp"));
	CHECK(stage_left("_sonde.error.txt"));
	CHECK_INT(fs_read_file(stage_left("_sonde.error.txt"), 4096, &text, &err), 0);
	CHECK(strstr(buf_str(&text), "request 4711"));
	CHECK(strstr(buf_str(&text), "File too large"));
	buf_release(&text);
	CHECK_INT(split_job_read(&job, tmpfile_path("out"), NULL, &err), -ENOENT);
	CHECK(strstr(err.text, "was not written") && strstr(err.text, "File too large"));
	split_job_release(&job);
	CHECK_INT(split_job_read(&job, tmpfile_path("out"), "4711", &err), -ENOENT);
	CHECK(strstr(err.text, "was not written"));
	split_job_release(&job);
	CHECK_INT(split_job_read(&job, tmpfile_path("out"), "471", &err), -ENOENT);
	CHECK(!strstr(err.text, "was not written"));
	split_job_release(&job);
}

TEST(trace_directory, a_place_that_cannot_be_written_is_told_beside)
{
	struct split_job job = {0};
	struct err err = {0};

	/* a file where the directory should be */
	CHECK_INT(close(open(tmpfile_path("out"), O_WRONLY | O_CREAT, 0600)), 0);
	begin("");
	some_steps();
	finish();
	CHECK(access(tmpfile_path("out.error.txt"), R_OK) == 0);
	unlink(tmpfile_path("out"));
	CHECK_INT(split_job_read(&job, tmpfile_path("out/"), NULL, &err), -ENOENT);
	CHECK(strstr(err.text, "was not written"));
	split_job_release(&job);
}
