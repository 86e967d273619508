#include <gtest/gtest.h>
#include <cstdlib>
#include <random>
#include <vector>
#include "bie/kernels/binary_gemm.h"
#include "bie/kernels/int8_gemm.h"
#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_conv2d.h"
#include "bie/kernels/int4_conv2d.h"
using namespace bie::kernels;
static void gemm(GemmTable t, Dtype code){
  std::mt19937 g(1);
  for (int m: {1,3,7,13,100}) for(int n: {1,17,64,65,130}) for(int k:{1,3,31,64,129,700}){
    GemmShape s{m,n,k};
    std::vector<float> x(m*k), b(k); for(auto&v:x) v=(int)(g()%2000-1000)/100.f; for(auto&v:b) v=(int)(g()%100-50)/50.f;
    std::vector<uint8_t> w(n*row_bytes(code,k)); for(auto&v:w) v=g();
    std::vector<int> ref;
    for(int r=t.count-1;r>=0;--r){ auto&row=t.rows[r]; if(row.isa>host().isa) continue;
      size_t nb=row.packed_bytes(n,k); void*p=aligned_alloc(64,(nb+127)/64*64);
      row.prepack(w.data(),n,k,p,serial());
      std::vector<int> y(m*n,-999);
      auto st=row.run(s,{x.data(),Dtype::f32,k*4,b.data(),0.07f},p,{y.data(),Dtype::s32,n*4,1.f},serial());
      ASSERT_EQ(st,Status::ok); if(ref.empty()) ref=y; ASSERT_EQ(ref,y)<<row.name<<" "<<m<<" "<<n<<" "<<k; free(p);
    }}}
TEST(Smoke,b1){gemm(b1xb1_gemm_table(),Dtype::bits);}
TEST(Smoke,s8){gemm(s8xs8_gemm_table(),Dtype::s8);}
TEST(Smoke,s4){gemm(s4xs4_gemm_table(),Dtype::s4);}
static void conv(Conv2dTable t, Dtype code){
  std::mt19937 g(1);
  for(int it=0;it<60;++it){
    Conv2dShape s{1+(int)(g()%2),1+(int)(g()%20),1+(int)(g()%12),1+(int)(g()%12),1+(int)(g()%80),1+(int)(g()%4),1+(int)(g()%4),1+(int)(g()%2),1+(int)(g()%2),(int)(g()%3),(int)(g()%3),1+(int)(g()%2),1+(int)(g()%2)};
    std::vector<float> x(s.batch*s.in_c*s.in_h*s.in_w), b(s.in_c); for(auto&v:x) v=(int)(g()%2000-1000)/100.f; for(auto&v:b) v=(int)(g()%100-50)/50.f;
    std::vector<uint8_t> w(s.out_c*row_bytes(code,s.depth())); for(auto&v:w) v=g();
    for(auto li:{ImageLayout::nchw,ImageLayout::nhwc}) for(auto lo:{ImageLayout::nchw,ImageLayout::nhwc}){
    std::vector<int> ref; bool first=true;
    for(int r=t.count-1;r>=0;--r){ auto&row=t.rows[r]; if(row.isa>host().isa) continue;
      size_t nb=row.packed_bytes(s); void*p=aligned_alloc(64,(nb+127)/64*64);
      row.prepack(w.data(),s,p,serial());
      std::vector<int> y(s.batch*s.out_c*s.out_h()*s.out_w(),-999);
      auto st=row.run(s,{x.data(),Dtype::f32,li,b.data(),0.07f},p,{y.data(),Dtype::s32,lo,1.f},serial());
      ASSERT_EQ(st,Status::ok); if(first) ref=y; first=false; ASSERT_EQ(ref,y)<<row.name<<" "<<it; free(p);
    }}}}
TEST(Smoke,c8){conv(s8xs8_conv2d_table(),Dtype::s8);}
TEST(Smoke,c4){conv(s4xs4_conv2d_table(),Dtype::s4);}
