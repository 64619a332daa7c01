package topkeys

import (
	"sync"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// shards is how many sketches a list is divided into, so that decisions on several cores do not wait for each other. Power of 2.
const shards = 4

// list is the keys that one policy allows, or denies.
type list struct{ shards [shards]shard }

type shard struct {
	mu sync.Mutex
	Sketch
	keys    [slots]policy.Key
	numbers [slots]*policy.Numbers // by which the key was decided last
	_       [64]byte               // shards do not share a line of the processor's cache
}

// add counts a key. Its shard follows from its id, so that each key is in one sketch; while that is locked, any other does as well: the sketches
// are added up.
func (l *list) add(id uint64, hit *policy.Hit) {
	home := id >> 62 % shards
	s := &l.shards[home]
	for i := range uint64(shards) {
		if other := &l.shards[(home+i)%shards]; other.mu.TryLock() {
			other.addLocked(id, hit)
			other.mu.Unlock()
			return
		}
	}
	s.mu.Lock()
	s.addLocked(id, hit)
	s.mu.Unlock()
}

func (s *shard) addLocked(id uint64, hit *policy.Hit) {
	place, fresh := s.Add(id)
	if fresh {
		s.keys[place] = hit.Key.CloneInto(s.keys[place])
	}
	s.numbers[place] = hit.Numbers
}

// decay gives what is left.
func (l *list) decay() (weight float64) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		weight += s.Decay(Fade)
		s.mu.Unlock()
	}
	return weight
}

// entry is a key as a list knows it.
type entry struct {
	id           uint64
	key          policy.Key
	numbers      *policy.Numbers
	count, error float64
}

// entries are all keys, in no order. Those of a key that is in several shards are added up.
func (l *list) entries() []entry {
	all := make([]entry, 0, shards*slots)
	at := make(map[uint64]int, shards*slots)
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for j := range s.used {
			e := entry{s.ids[j], s.keys[j].Clone(), s.numbers[j], s.counts[j], s.errors[j]}
			if known, ok := at[e.id]; ok {
				all[known].count += e.count
				all[known].error += e.error
				continue
			}
			at[e.id] = len(all)
			all = append(all, e)
		}
		s.mu.Unlock()
	}
	return all
}

// find gives the key that has this id.
func (l *list) find(id uint64) (policy.Key, *policy.Numbers, bool) {
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		for j := range s.used {
			if s.ids[j] == id {
				key, numbers := s.keys[j].Clone(), s.numbers[j]
				s.mu.Unlock()
				return key, numbers, true
			}
		}
		s.mu.Unlock()
	}
	return policy.Key{}, nil, false
}
