// Package compose runs a Compose file without a container engine: each service is a process, or a few, in namespaces of its own for the
// network, the file system and the host name, started from what the file says: images and builds, commands, users, environment, networks,
// published ports, volumes, secrets, health checks and what depends on what.
//
// What the file says and the runner does not understand is an error. So the file cannot promise what a test that starts it does not see.
//
// What is knowingly different from a container engine:
//   - Images are not pulled. The table in images.go says which programs of this machine stand for them, whatever their version; of an image that
//     has none here (Grafana), the service is checked as far as the file goes and not started.
//   - A Dockerfile is followed step by step, but a stage that is built from a public image has the tools of this machine.
//   - cap_drop and no-new-privileges: no process has a capability, since none may be root, and none can gain one; the list itself is not applied.
//   - Process ids are those of the machine. Nothing limits memory or CPU.
//   - What a container writes outside of its volumes is still there after a restart.
//   - The names of all services are known from the start, and not only of those that run.
//   - "The host", where ports are published, is a network namespace too: [Demo.Host] runs commands there, [Demo.Dial] connects to it.
//
// It needs Linux and root. Nothing that it makes has a name outside of the process or outlives it: when the process ends, however it does,
// the kernel takes down its namespaces, and with them the bridges and mounts.
package compose
