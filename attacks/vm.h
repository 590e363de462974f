/* SPDX-License-Identifier: GPL-2.0-only */
/* A VM whose vCPUs wait in the kernel for their start and never run a guest. */
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* A row fails when its attack cannot be made: inside.sh looks for these words. */
static inline void must(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "no attack: %s: %s\n", what, strerror(errno));
	exit(1);
}

static inline uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

static inline void burn_us(uint64_t us)
{
	uint64_t end = now_us() + us;

	while (now_us() < end)
		;
}

static inline void sleep_us(uint64_t us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static inline int make_vm(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int vm = ioctl(kvm, KVM_CREATE_VM, 0);

	must(vm >= 0 && !ioctl(vm, KVM_CREATE_IRQCHIP, 0), "/dev/kvm");
	return vm;
}

static inline int make_vcpu(int vm, long number)
{
	struct kvm_mp_state waits = {KVM_MP_STATE_UNINITIALIZED};
	int vcpu = ioctl(vm, KVM_CREATE_VCPU, number);

	must(vcpu >= 0 && !ioctl(vcpu, KVM_SET_MP_STATE, &waits), "vCPU");
	return vcpu;
}

static inline void start_thread(void *(*work)(void *), void *argument)
{
	pthread_t thread;
	pthread_attr_t small;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 32768);
	errno = pthread_create(&thread, &small, work, argument);
	must(!errno, "thread");
}
