#!/usr/bin/env python3
"""Random plausible logs through the packaged original and through ours, outputs compared byte for byte.

    random_logs.py MODULE BINARY COUNT DIRECTORY

MODULE is pbs, lsf, fork, job_manager or sge; BINARY is `updraft`; what differs is kept in DIRECTORY. As root, with Debian's
globus-scheduler-event-generator-progs and globus-gram-job-manager-{pbs,lsf,sge,fork}-setup-seg installed: the module's
configuration is replaced in a mount namespace of its own. Seeds are 0 to COUNT - 1.
"""
import random, subprocess, os, sys, time, tempfile, shutil
OLD='/usr/sbin/globus-scheduler-event-generator'; NEW=sys.argv[2]
T0=1717200000
def pbs(r,d):
    lines=[];t=T0-86400*2+r.randrange(86400)
    n=r.randrange(5,60)
    style=r.choice(['torque2','torque6','openpbs'])
    srv={'torque2':'PBS_Server','torque6':'PBS_Server.%d'%r.randrange(1000,9999),'openpbs':'Server@h1'}[style]
    files={}
    def put(kind,cls,obj,msg):
        tm=time.gmtime(t)
        ts=time.strftime('%m/%d/%Y %H:%M:%S',tm)
        if style=='torque6': ts+='.%03d'%r.randrange(1000)
        k=('%02d'%{8:8,16:16,2:2,4:4,0x40:64}[kind]) if style=='torque6' else '%04x'%kind
        files.setdefault(time.strftime('%Y%m%d',tm),[]).append(';'.join([ts,k,srv,cls,obj,msg]))
    jobs={}
    for i in range(n*4):
        t+=r.choice([0,0,1,2,5,60,600,4000])
        a=r.random()
        if a<.3 or not jobs:
            j='%d%s.srv'%(100+i,r.choice(['','','[]','[%d]'%r.randrange(9)]))
            jobs[j]='Q'
            put(8,'Job',j,'Job Queued at request of u@h, owner = u@h, job name = n, queue = batch')
            if style=='torque6': put(8,'Req','req_commit','job_id: '+j)
        elif a<.35: put(4,'Svr','PBS_Server','Log opened')
        elif a<.4: put(0x40,'Req','','Type AuthenticateUser request received from u@h, sock=9')
        else:
            j=r.choice(list(jobs))
            if jobs[j]=='Q':
                b=r.random()
                if b<.7: jobs[j]='R';put(8,'Job',j,'Job Run at request of Scheduler@h')
                elif b<.8: put(8,'Job',j,'Job Modified at request of Scheduler@h')
                elif b<.9: put(8,'Job',j,'Holds u set at request of u@h')
                else: del jobs[j];put(8,'Job',j,'Job deleted at request of u@h')
            else:
                b=r.random()
                if b<.8: del jobs[j];put(16,'Job',j,'Exit_status=%d resources_used.cput=00:00:00 resources_used.mem=1kb'%r.choice([0,0,0,1,3,127,271,-1,-11,256]))
                elif b<.9: put(8,'Job',j,'Job Rerun at request of u@h')
                else:
                    del jobs[j];put(8,'Job',j,'Job %s at request of u@h'%('to be deleted' if style=='openpbs' else 'deleted'));put(16,'Job',j,'Exit_status=271 x')
    for f,l in files.items(): open(os.path.join(d,f),'w').write('\n'.join(l)+'\n')
    return d
def lsf(r,d):
    out=[];t=T0;jobs={}
    nid=200
    exc=r.random()<.3
    for i in range(r.randrange(10,150)):
        t+=r.choice([0,0,1,3,60])
        a=r.random()
        if a<.35 or not jobs:
            nid+=1;jobs[nid]='N'
            out.append('"JOB_NEW" "%s" %d %d 1001 33554438 1 %d 0 0 -1 0 0 "alice" -1 -1 "hostA" 10.00 18 "normal" "" "login1" "work" "" "" "o" "" "/home" "x" 0 "" "" "job" "sleep ""10""" 0 "alice" "d" 1 "L" "" 0 0 "" "" "" -1 ""'%('7.06',t,nid,t))
        else:
            j=r.choice(list(jobs))
            if jobs[j]=='N':
                jobs[j]='R'
                out.append('"JOB_START" "7.06" %d %d 4 0 0 10.0 1 "node1" "" "" 0 "" 0 "" 0'%(t,j))
                out.append('"JOB_START_ACCEPT" "7.06" %d %d 4123 4123 0'%(t,j))
                out.append('"JOB_EXECUTE" "7.06" %d %d 1001 4123 "/h" "/h" "alice" 4123 0 "" -1 ""'%(t,j))
            else:
                b=r.random()
                ru='1 0.012000 0.024000 '+' '.join(['0']*17) if r.random()<.7 else '0'
                if b<.4: del jobs[j];out.append('"JOB_STATUS" "7.06" %d %d 64 0 0 0.0360 %d %s 0 0 0'%(t,j,t,ru))
                elif b<.6: del jobs[j];out.append('"JOB_STATUS" "7.06" %d %d 32 0 0 0.0360 %d %s %d 0 0'%(t,j,t,ru,r.choice([256,768,32512,9,15])))
                elif b<.75: del jobs[j];out.append('"JOB_STATUS" "7.06" %d %d 32 0 0 0.0360 %d %s %d 0 %d'%(t,j,t,ru,r.choice([9,15,33280]),r.choice([5,12,14,15,16])))
                elif b<.85: out.append('"JOB_STATUS" "7.06" %d %d %d 0 0 0.0360 0 0 0 0 0'%(t,j,r.choice([2,4,8,16])))
                elif b<.9: jobs[j]='N';out.append('"JOB_REQUEUE" "7.06" %d %d 0'%(t,j))
                elif b<.95 and exc: out.append('"JOB_EXCEPTION" "7.06" %d %d %d 1 0 3 0'%(t,j,1<<r.randrange(7)))
                else: out.append('"JOB_SIGNAL" "7.06" %d %d 1001 1 "KILL" 0 "alice"'%(t,j))
    open(os.path.join(d,'lsb.events'),'w').write('#80'+' '*76+'\n'+'\n'.join(out)+'\n')
    return d
def fork(r,d):
    out=[];t=T0;jobs=[]
    for i in range(r.randrange(10,150)):
        t+=r.choice([0,0,1,3,60])
        if r.random()<.5 or not jobs:
            j='%08x-%04x-11ee-8c90-%012x:%d'%(r.getrandbits(32),r.getrandbits(16),r.getrandbits(48),r.randrange(2,99999));jobs.append(j)
            out.append('001;%d;%s;2;0'%(t,j))
        else:
            j=jobs.pop(r.randrange(len(jobs)))
            out.append('001;%d;%s;%s'%(t,j,r.choice(['8;%d'%r.choice([0,0,1,3,127,255]),'4;0'])))
    open(os.path.join(d,'fork.log'),'w').write('\n'.join(out)+'\n')
    return os.path.join(d,'fork.log')
def job_manager(r,d):
    t=T0-86400*3;files={}
    for i in range(r.randrange(10,150)):
        t+=r.choice([0,1,60,3600,7200])
        files.setdefault(time.strftime('%Y%m%d',time.gmtime(t)),[]).append('001;%d;%d.srv;%s'%(t,r.randrange(100,130),r.choice(['1;0','2;0','4;0','8;0','8;3','8;271','4;14'])))
    for f,l in files.items(): open(os.path.join(d,f),'w').write('\n'.join(l)+'\n')
    return d
def sge(r,d):
    out=[];t=T0;jobs={};nid=0
    out.append('# Version: 8.1.9')
    out.append('# ')
    out.append('# DO NOT MODIFY THIS FILE MANUALLY!')
    out.append('# ')
    def jl(ev,j,task,user,msg,st='r'):
        out.append('%d:job_log:%d:%s:%d:%s:NONE:%s:%s:h:0:1024:%d:job%d:o:g::defaultdepartment:sge:%s'%(t,t,ev,j,task,st,user,t,j,msg))
    def acct(j,task,failed,exit):
        f=['main.q','h','g','o','job%d'%j,str(j),'sge','0',str(t-20),str(t-10),str(t),str(failed),str(exit)]+['0.1']*18+['NONE','defaultdepartment','NONE','1',str(task),'0.1','0.1','0.1','-U x','0.0','NONE','0.1','0','0']
        out.append('%d:acct:'%t+':'.join(f))
    for i in range(r.randrange(10,80)):
        t+=r.choice([0,1,3,60])
        a=r.random()
        if a<.35 or not jobs:
            nid+=1;jobs[nid]='N'
            out.append('%d:new_job:%d:%d:-1:NONE:job%d:o:g::defaultdepartment:sge:1024'%(t,t,nid,nid)); jl('pending',nid,'-1','o','new job','')
        else:
            j=r.choice(list(jobs))
            if jobs[j]=='N':
                if r.random()<.15: del jobs[j]; jl('deleted',j,'-1','o','job deleted by user','T')
                else:
                    jobs[j]='R'; jl('sent',j,'0','master','sent to execd','t'); 
                    if r.random()<.8: jl('delivered',j,'0','master','job received by execd')
            else:
                b=r.random()
                if b<.75:
                    del jobs[j]; code=r.choice([0,0,1,3,127]); acct(j,0,0,code); jl('finished',j,'0','execution daemon','job exited'); jl('finished',j,'0','master','job waits for schedds deletion'); jl('deleted',j,'0','scheduler','job deleted by schedd','T')
                elif b<.9:
                    del jobs[j]; jl('deleted',j,'0','o','job deleted by user','dr'); acct(j,0,100,137); jl('finished',j,'0','execution daemon','job exited','dr'); jl('deleted',j,'0','scheduler','job deleted by schedd','T')
                elif b<.95: jl('suspended',j,'0','o','job suspended','s'); jl('unsuspended',j,'0','o','job unsuspended')
                else: acct(j,0,0,-1)
    open(os.path.join(d,'reporting'),'w').write('\n'.join(out)+'\n')
    return os.path.join(d,'reporting')
GENS=dict(pbs=pbs,lsf=lsf,fork=fork,job_manager=job_manager,sge=sge)
def original(mod,path,t,wait):
    conf=tempfile.mktemp()
    open(conf,'w').write('log_path="%s"\n'%path)
    env=dict(os.environ,TZ='UTC',JOB_MANAGER_SEG_SCHEDULER='x',JOB_MANAGER_SEG_LOG_PATH=path)
    bind='' if mod=='job_manager' else 'mount --bind %s /etc/globus/globus-%s.conf && '%(conf,mod)
    p=subprocess.Popen(['unshare','-m','sh','-c',bind+'exec %s -s %s -t %d'%(OLD,mod,t)],stdin=subprocess.PIPE,stdout=subprocess.PIPE,stderr=subprocess.DEVNULL,env=env)
    return p,conf
def main():
    mod=sys.argv[1]; n=int(sys.argv[3]); keep=sys.argv[4]
    agree=differ=lo=ln=0; os.makedirs(keep,exist_ok=True)
    batch=20
    for b in range(0,n,batch):
        runs=[]
        for seed in range(b,min(n,b+batch)):
            r=random.Random('%s-%d'%(mod,seed)); d=tempfile.mkdtemp(); path=GENS[mod](r,d)
            t=T0-86400*4 if r.random()<.7 else T0+r.randrange(-86400,600)
            runs.append((seed,d,path,t,*original(mod,path,t,0)))
        time.sleep(3.5 if mod!='job_manager' else 6.0)
        for x in runs: x[4].stdin.close()
        for seed,d,path,t,p,conf in runs:
            out=p.stdout.read(); p.wait()
            new=subprocess.run([NEW,'seg','-s',mod,'-t',str(t),'--once','--log-path',path],env=dict(os.environ,TZ='UTC'),stdin=subprocess.DEVNULL,capture_output=True)
            lo+=out.count(b'\n'); ln+=new.stdout.count(b'\n')
            if out==new.stdout: agree+=1
            else:
                differ+=1
                open('%s/%s-%d.old'%(keep,mod,seed),'wb').write(out); open('%s/%s-%d.new'%(keep,mod,seed),'wb').write(new.stdout)
                shutil.copytree(d,'%s/%s-%d.log'%(keep,mod,seed),dirs_exist_ok=True); open('%s/%s-%d.t'%(keep,mod,seed),'w').write(str(t))
            shutil.rmtree(d); os.unlink(conf)
    print(mod,'logs',n,'agree',agree,'differ',differ,'lines original',lo,'ours',ln)
main()
