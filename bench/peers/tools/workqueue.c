/* A manager of Work Queue: it prints its port, then a line of numbers for each line of commands that
   it reads.

   workqueue RETRIES: "run COUNT" followed by COUNT lines runs them, and prints an exit status for
   each (-1: given up) as it is known; "queue COUNT" followed by COUNT lines only submits them, and
   prints "queued". With RETRIES, a command that failed is submitted again, as the manual has it for
   failures of the task itself, up to so often. Its "fast abort" stays off, as by default: it
   measures slowness by the mean of all tasks, and where some fail at once it sends every healthy
   worker away. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <work_queue.h>

static char line[65536];

static void submit(struct work_queue *q, int retries)
{
	if (!fgets(line, sizeof line, stdin))
		exit(1);
	line[strcspn(line, "\n")] = 0;
	struct work_queue_task *t = work_queue_task_create(line);
	work_queue_task_specify_cores(t, 1);
	if (retries)
		work_queue_task_specify_max_retries(t, retries);
	char tag[16];
	snprintf(tag, sizeof tag, "%d", retries);
	work_queue_task_specify_tag(t, tag);
	work_queue_submit(q, t);
}

static void wait_for(struct work_queue *q, int count)
{
	while (count) {
		struct work_queue_task *t = work_queue_wait(q, 1);
		if (!t)
			continue;
		int ok = t->result == WORK_QUEUE_RESULT_SUCCESS;
		int left = atoi(t->tag);
		if (left > 0 && (!ok || t->return_status)) {
			struct work_queue_task *again = work_queue_task_create(t->command_line);
			work_queue_task_specify_cores(again, 1);
			char tag[16];
			snprintf(tag, sizeof tag, "%d", left - 1);
			work_queue_task_specify_tag(again, tag);
			work_queue_submit(q, again);
		} else {
			printf("%d\n", ok ? t->return_status : -1);
			fflush(stdout);
			count--;
		}
		work_queue_task_delete(t);
	}
}

int main(int argc, char **argv)
{
	int retries = argc > 1 ? atoi(argv[1]) : 0;
	struct work_queue *q = work_queue_create(0);
	if (!q)
		return 1;
	printf("%d\n", work_queue_port(q));
	fflush(stdout);
	char word[16];
	int count;
	while (scanf("%15s %d ", word, &count) == 2) {
		for (int i = 0; i < count; i++)
			submit(q, retries);
		if (!strcmp(word, "queue")) {
			printf("queued\n");
			fflush(stdout);
		} else {
			wait_for(q, count);
		}
	}
	work_queue_delete(q);
	return 0;
}
