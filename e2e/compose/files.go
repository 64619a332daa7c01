//go:build linux

package compose

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/compose-spec/compose-go/v2/types"
)

// makeRoot puts the image's own files in place, and finds out what is mounted where.
func (c *container) makeRoot() error {
	c.root = root{dir: filepath.Join(c.dir, "root"), tools: c.image.tools, readOnly: c.service.ReadOnly}
	if err := os.MkdirAll(filepath.Join(c.root.dir, "etc"), 0o755); err != nil {
		return err
	}
	if c.image.files != "" && !c.image.tools {
		t := tree{from: c.image.files, to: c.root.dir}
		if err := t.copy("", true); err != nil {
			return err
		}
	}
	uid, gid, err := owner(c.user())
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"hosts": c.hosts, "hostname": c.hostname() + "\n", "resolv.conf": "# there is no name server\n",
		"passwd": fmt.Sprintf("root:x:0:0::/:/bin/sh\nuser:x:%d:%d::/:/bin/sh\n", uid, gid),
	} {
		if err := os.WriteFile(filepath.Join(c.root.dir, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	for _, target := range sorted(c.image.programs) {
		c.root.mounts = append(c.root.mounts, mount{source: c.image.programs[target], target: target, readOnly: true})
	}
	return c.mountVolumes()
}

// mountVolumes adds what the file mounts, and the volumes of the image that it does not name.
func (c *container) mountVolumes() error {
	named := map[string]bool{}
	for _, v := range c.service.Volumes {
		named[v.Target] = true
		source := v.Source
		if v.Type == types.VolumeTypeVolume {
			var err error
			if source, err = c.volume(v.Source, v.Target); err != nil {
				return err
			}
		} else if v.Type != types.VolumeTypeBind {
			return fmt.Errorf("volume at %s: type %s is not understood here", v.Target, v.Type)
		}
		c.root.mounts = append(c.root.mounts, mount{source: source, target: v.Target, readOnly: v.ReadOnly})
	}
	for _, target := range sorted(c.image.volumes) {
		if named[target] {
			continue
		}
		source, err := c.volume("", target)
		if err != nil {
			return err
		}
		c.root.mounts = append(c.root.mounts, mount{source: source, target: target})
	}
	for _, t := range c.service.Tmpfs {
		target, options, _ := strings.Cut(t, ":")
		c.root.mounts = append(c.root.mounts, mount{target: target, memory: true, options: cmp.Or(options, "mode=1777")})
	}
	for _, s := range c.service.Secrets {
		target := cmp.Or(s.Target, s.Source)
		if !filepath.IsAbs(target) {
			target = "/run/secrets/" + target
		}
		c.root.mounts = append(c.root.mounts, mount{source: c.demo.project.Secrets[s.Source].File, target: target, readOnly: true})
	}
	return nil
}

// volume makes the directory of a volume, unless another container has. It begins with what the image has there, owner included.
func (c *container) volume(name, target string) (string, error) {
	dir := filepath.Join(c.dir, "volumes", strings.ReplaceAll(target, "/", "_"))
	if name != "" {
		dir = filepath.Join(c.demo.dir, "volumes", name)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if info, err := os.Stat(filepath.Join(c.image.files, target)); c.image.files != "" && err == nil {
		owner := info.Sys().(*syscall.Stat_t)
		return dir, os.Chown(dir, int(owner.Uid), int(owner.Gid))
	}
	uid, gid, err := owner(c.image.volumes[target])
	return dir, errors.Join(err, os.Chown(dir, uid, gid))
}
